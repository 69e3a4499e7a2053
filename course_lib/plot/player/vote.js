// The buttons of a vote. The first one counts; the page keeps the score, and nothing is sent anywhere.
function live(root, task) {
  const form = document.createElement("form");
  root.appendChild(form);
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
    const agreed = number === task.verdict;
    root.dataset.vote = agreed ? "agreed" : "differed";
    for (const other of buttons) other.disabled = true;
    button.setAttribute("aria-pressed", "true");
    const votes = document.querySelectorAll(".cp-vote[data-vote]").length;
    const same = document.querySelectorAll(".cp-vote[data-vote=agreed]").length;
    said.textContent = `You said: ${task.choices[number]}. `
      + `${agreed ? "So does the court" : "The court says otherwise"}. Agreed so far: ${same} of ${votes}.`;
    said.className = agreed ? "cp-right" : "cp-wrong";
  }));
}
