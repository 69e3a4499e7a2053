// Buttons that choose among answers. Where votes are counted, the first one counts, and the page keeps the score;
// else one may choose again. Nothing is sent anywhere.
function live(root, task) {
  const form = document.createElement("form"), more = root.querySelector("details");
  root.insertBefore(form, more);
  root.insertBefore(document.createElement("style"), form).textContent = task.css;
  const buttons = task.choices.map(choice => {
    const button = form.appendChild(document.createElement("button"));
    button.type = "button";
    button.textContent = choice;
    return button;
  });
  const said = form.appendChild(document.createElement("p"));
  said.setAttribute("role", "status");
  buttons.forEach((button, number) => button.addEventListener("click", () => {
    const right = number === task.right;
    for (const other of buttons) {
      other.disabled = task.counted;
      other.setAttribute("aria-pressed", String(other === button));
    }
    said.textContent = `You said: ${task.choices[number]}. ${task.replies[number]}`;
    said.className = right ? "cp-right" : "cp-wrong";
    if (right && more) more.open = true;
    if (!task.counted) return;
    root.dataset.vote = right ? "agreed" : "differed";
    const votes = document.querySelectorAll(".cp-vote[data-vote]").length;
    const same = document.querySelectorAll(".cp-vote[data-vote=agreed]").length;
    said.textContent += ` Agreed so far: ${same} of ${votes}.`;
  }));
}
