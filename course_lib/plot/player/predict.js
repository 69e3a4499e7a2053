// The answer field of a prediction. Nothing is sent anywhere; the answer lies in the output itself.
function live(root, task) {
  const form = document.createElement("form");
  root.insertBefore(form, root.querySelector("details"));
  root.insertBefore(document.createElement("style"), form).textContent = task.css;
  const add = (tag, attributes, text) => {
    const element = form.appendChild(document.createElement(tag));
    for (const name in attributes) element.setAttribute(name, attributes[name]);
    element.textContent = text || "";
    return element;
  };
  const field = add("input", {type: "text", inputmode: "decimal", autocomplete: "off", spellcheck: "false",
                              "aria-label": `${task.question}, in ${task.unit || "a number"}`, placeholder: "your prediction"});
  add("span", {class: "cp-unit"}, task.unit);
  add("button", {type: "submit"}, "Check");
  const said = add("p", {role: "status"});

  // 1.5, 1,5, 3/2 and 12e6, with or without the unit after it; or why it cannot be read.
  function read(text) {
    let words = text.trim().replace(/[−–]/g, "-").replace(/\s+/g, "");
    const unit = task.unit.replace(/\s+/g, "");
    if (unit && words.toLowerCase().endsWith(unit.toLowerCase())) words = words.slice(0, -unit.length);
    if (!words) return "Write a number first.";
    if (/^-?[1-9]\d{0,2}(,\d{3})+$/.test(words))
      return `Is ${words} ${words.replace(/,/g, "")} or ${words.replace(",", ".")}? Write it with a point, or without commas.`;
    const number = "-?(?:\\d+[.,]?\\d*|[.,]\\d+)(?:e[+-]?\\d+)?";
    const found = words.match(new RegExp(`^(${number})(?:/(${number}))?$`, "i"));
    if (!found) return "That is not a number. 1.5, 1,5, 3/2 and 12e6 are.";
    const value = s => parseFloat(s.replace(",", "."));
    const result = value(found[1]) / (found[2] === undefined ? 1 : value(found[2]));
    return isFinite(result) ? result : "That divides by zero.";
  }
  const close = (a, b) => Math.abs(a - b) <= Math.max(task.tolerance * Math.abs(b), 1e-12);
  const short = value => String(+value.toPrecision(3));
  function judge(value) {
    if (close(value, task.answer)) return `Right: ${task.shown}.`;
    for (const [near, message] of task.near) if (close(value, near)) return `Not quite. ${message}`;
    const high = value > task.answer, ratio = high ? value / task.answer : task.answer / value;
    if (!isFinite(ratio) || ratio <= 0) return high ? "Too high." : "Too low.";
    if (ratio < 1.1) return `Close: too ${high ? "high" : "low"} by ${short(100 * Math.abs(value / task.answer - 1))} %.`;
    return `Too ${high ? "high" : "low"} by a factor of ${short(ratio)}.`;
  }
  // A notebook may take Enter for itself and keep the form from being submitted, so it is heard here.
  field.addEventListener("keydown", event => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    check();
  });
  form.addEventListener("submit", event => {
    event.preventDefault();
    check();
  });
  function check() {
    const value = read(field.value), right = typeof value === "number" && close(value, task.answer);
    said.textContent = typeof value === "number" ? judge(value) : value;
    said.className = right ? "cp-right" : "cp-wrong";
    if (right) root.querySelector("details").open = true;
  }
}
