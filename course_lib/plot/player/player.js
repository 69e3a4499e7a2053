// The player of precomputed frames: everything it needs is in `film`, nothing is asked of a kernel.
// A frame is a row of numbers: which drawing of `film.table` each part of the picture shows. A step
// redraws only the parts that differ, which takes about a millisecond.
function live(root, film) {
  const make = (tag, parent, attributes) => {
    const element = parent.appendChild(document.createElement(tag));
    for (const name in attributes) element.setAttribute(name, attributes[name]);
    return element;
  };
  const last = film.frames.length - 1;
  root.textContent = "";
  make("style", root).textContent = film.css;
  const stage = make("div", root, {class: "cp-stage"});
  stage.innerHTML = film.picture;
  const drawing = stage.firstElementChild;
  const parts = [...stage.querySelectorAll("[data-part]")];
  const shown = parts.map(() => -1);
  const bar = make("div", root, {class: "cp-bar"});
  const buttons = {};
  for (const [name, path, act] of [
    ["First", "M3 2h2v12H3zM14 2v12L6 8z", () => go(0)],
    ["Back", "M12 2v12L4 8z", () => go(now - 1)],
    ["Play", "M4 2v12l10-6z", () => timer ? halt() : start()],
    ["Forward", "M4 2v12l8-6z", () => go(now + 1)],
    ["Last", "M11 2h2v12h-2zM2 2v12l8-6z", () => go(last)]]) {
    const button = buttons[name] = make("button", bar, {type: "button", "aria-label": name, title: name});
    button.innerHTML = `<svg viewBox="0 0 16 16" width="14" height="14" aria-hidden="true"><path d="${path}"/></svg>`;
    button.addEventListener("click", act);
  }
  const slider = make("input", bar, {type: "range", min: 0, max: last, step: 1, value: film.still,
                                     "aria-label": film.title});
  const count = make("span", bar, {class: "cp-count"});
  const caption = make("p", root, {class: "cp-caption", "aria-live": "polite"});
  let now = film.still, timer = 0;

  function show(frame) {
    now = Math.max(0, Math.min(last, frame));
    film.frames[now].forEach((drawn, part) => {
      if (shown[part] !== drawn) parts[part].innerHTML = film.table[shown[part] = drawn];
    });
    slider.value = now;
    slider.setAttribute("aria-valuetext", film.captions[now]);
    drawing.setAttribute("aria-label", `${film.title}. ${film.captions[now]}`);
    caption.textContent = film.captions[now];
    count.textContent = `${now + 1} / ${last + 1}`;
    for (const name of ["First", "Back"]) buttons[name].setAttribute("aria-disabled", now === 0);
    for (const name of ["Forward", "Last"]) buttons[name].setAttribute("aria-disabled", now === last);
  }
  function go(frame) { halt(); show(frame); }
  function face(name, path) {
    buttons.Play.setAttribute("aria-label", name);
    buttons.Play.title = name;
    buttons.Play.querySelector("path").setAttribute("d", path);
  }
  function halt() {
    clearInterval(timer);
    timer = 0;
    face("Play", "M4 2v12l10-6z");
  }
  function start() {
    show(now === last ? 0 : now);
    face("Pause", "M3 2h4v12H3zM9 2h4v12H9z");
    timer = setInterval(() => {
      if (!root.isConnected || now === last) halt();
      else show(now + 1);
    }, 1200);
  }
  const keys = {ArrowLeft: () => go(now - 1), ArrowRight: () => go(now + 1), Home: () => go(0), End: () => go(last)};
  root.addEventListener("keydown", event => {
    if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    keys[event.key]();
    event.preventDefault();
  });
  slider.addEventListener("input", () => go(+slider.value));
  stage.addEventListener("click", () => slider.focus());
  show(film.still);
}
