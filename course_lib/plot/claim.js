// The element that a script belongs to: the first of its kind and name that waits, as near as can be.
// Not every notebook runs a script where it stands: VS Code runs a copy at the end of the output.
function claim(kind, name) {
  for (let near = document.currentScript || document.body; near; near = near.parentElement)
    for (const element of near.querySelectorAll("." + kind))
      if (!element.dataset.ready && (element.getAttribute("aria-label") || "") === name) {
        element.dataset.ready = "yes";
        element.addEventListener("keydown", keep);
        return element;
      }
}
// Keys are for what has the focus: VS Code would go to another cell with Home, and delete it with Delete.
function keep(event) {
  const leaves = event.ctrlKey || event.metaKey || event.altKey || ["Tab", "Escape"].includes(event.key);
  if (!leaves) event.stopPropagation();
}
