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
// Keys that write or move are for what has the focus: VS Code would go to another cell with Home, and
// delete it with Delete. All others, F1 and Escape among them, are the notebook's.
function keep(event) {
  const mine = event.key.length === 1 || /^(Arrow|Home|End|Page|Enter|Backspace|Delete)/.test(event.key);
  if (mine && !event.ctrlKey && !event.metaKey && !event.altKey) event.stopPropagation();
}
