"""Steppers, answer fields and pictures of an executed notebook, in every way that it may be shown.

No kernel runs when they are looked at. Each of them is in the notebook twice, with equal content.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import nbformat
import pytest
from nbclient import NotebookClient
from nbconvert import HTMLExporter
from nbformat.v4 import new_code_cell, new_notebook

EXPLORERS = ("schedule_explorer", "explore_mesh", "explore_plan")
QUESTION = 'How many </script> "tags"?'
CELLS = [
    "from IPython.display import display\nfrom course_lib import plot",
    "player = plot.tensor_split_steps(6, 8, 16, 3)\ndisplay(player, player)",
    f"asked = plot.predict({QUESTION!r}, 1.5, 'MiB', why='because')\ndisplay(asked, asked)",
    "ranks = plot.topology([[0, 2], [1, 3]], 2)\ndisplay(ranks, ranks)",
    "player",  # again, in cells of their own
    "asked",
    "ranks",
    *(f"plot.{name}()" for name in EXPLORERS),
]  # fmt: skip
PLAYERS, FIELDS, PICTURES = 3, 3, 3 + len(EXPLORERS)

# What VS Code does with an HTML output (microsoft/vscode, extensions/notebook-renderers/src/
# index.ts, `renderHTML` and `domEval`): markup first, in an element of its own; then of each script
# a copy, which is put at that element's end and taken away at once.
VS_CODE = """outputs => {
  document.body.dataset.vscodeThemeKind = 'vscode-dark';
  document.body.style.setProperty('--vscode-editor-foreground', '#cccccc');
  document.body.style.setProperty('--vscode-editor-background', '#1f1f1f');
  for (const html of outputs) {
    const element = document.body.appendChild(document.createElement('div'));
    element.innerHTML = html;
    for (const script of [...element.getElementsByTagName('script')]) {
      const copy = document.createElement('script');
      copy.text = script.innerText;
      element.appendChild(copy);
      copy.remove();
    }
  }
}"""
# What jQuery's append does, and so Notebook 6 and nbclassic (jquery/jquery, src/core/DOMEval.js):
# a copy of each script runs in the page's head.
JQUERY = """outputs => {
  for (const html of outputs) {
    const element = document.body.appendChild(document.createElement('div'));
    element.innerHTML = html;
    for (const script of [...element.getElementsByTagName('script')]) {
      const copy = document.createElement('script');
      copy.text = script.textContent;
      script.remove();
      document.head.appendChild(copy);
      copy.remove();
    }
  }
}"""
# JupyterLab and Notebook 7 (@jupyterlab/rendermime, src/renderers.ts): a copy of each script in its
# place.
JUPYTERLAB = """outputs => {
  for (const html of outputs) {
    const element = document.body.appendChild(document.createElement('div'));
    element.innerHTML = html;
    for (const script of [...element.getElementsByTagName('script')]) {
      const copy = document.createElement('script');
      copy.textContent = script.textContent;
      script.replaceWith(copy);
    }
  }
}"""


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The notebook, run as `make notebooks` runs them."""
    path = tmp_path_factory.mktemp("executed") / "notebook.ipynb"
    notebook = new_notebook(cells=[new_code_cell(source) for source in CELLS])
    with mock.patch.dict(os.environ, COURSE_LIVE="0"):
        NotebookClient(notebook, timeout=300).execute()
    nbformat.write(notebook, path)
    return path


def outputs(path: Path) -> list[str]:
    """The HTML of every output, in the order of the notebook."""
    return [
        output.data["text/html"]
        for cell in nbformat.read(path, as_version=4).cells
        for output in cell.outputs
        if "text/html" in output.get("data", {})
    ]


def rendered(algorithm: str) -> Callable[[Any, Path], None]:
    """A way to show a notebook: outputs put into an empty page by a front end's algorithm."""

    def show(page: Any, path: Path) -> None:
        page.goto("data:text/html,<!doctype html><meta charset=utf-8>")
        page.evaluate(algorithm, outputs(path))

    return show


def exported(template: str) -> Callable[[Any, Path], None]:
    """`jupyter nbconvert --to html --template TEMPLATE`."""

    def show(page: Any, path: Path) -> None:
        html, _ = HTMLExporter(template_name=template).from_filename(str(path))
        page.set_content(html)

    return show


def in_place(page: Any, path: Path) -> None:
    """A page that holds all outputs side by side; scripts run where they stand."""
    page.set_content("<!doctype html><meta charset=utf-8><body>" + "".join(outputs(path)))


WAYS = {
    "VS Code": rendered(VS_CODE),
    "JupyterLab": rendered(JUPYTERLAB),
    "Notebook 6": rendered(JQUERY),
    "in place": in_place,
    "nbconvert lab": exported("lab"),
    "nbconvert classic": exported("classic"),
    "nbconvert basic": exported("basic"),
}


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """An empty page without a network; nothing may have been an error on it at the end."""
    context, faults = browser.new_context(offline=True), []
    opened = context.new_page()
    opened.set_default_timeout(60_000)
    opened.on("pageerror", lambda error: faults.append(str(error)))
    yield opened
    context.close()
    # nbconvert's own pages load MathJax and mermaid from elsewhere, and miss them here.
    assert [fault for fault in faults if "mermaid" not in fault] == []


@pytest.mark.parametrize("way", WAYS)
def test_every_output_is_live_however_it_is_shown(page: Any, executed: Path, way: str) -> None:
    WAYS[way](page, executed)
    page.evaluate("window.heard = []; addEventListener('keydown', e => heard.push(e.key))")
    players, fields = page.locator(".cp-player"), page.locator(".cp-predict")
    assert (players.count(), fields.count()) == (PLAYERS, FIELDS)
    for number, player in enumerate(players.all()):
        assert player.get_by_role("slider").count() == 1
        player.get_by_role("slider").press("Home")
        for _ in range(number + 1):  # each steps alone
            page.keyboard.press("ArrowRight")
    counts = [text.split(" / ")[0] for text in page.locator(".cp-count").all_inner_texts()]
    assert counts == ["2", "3", "4"]
    for typed, field in zip(("1.5", "3", "6"), fields.all(), strict=True):
        field.get_by_label(f"{QUESTION}, in MiB").fill(typed)
        page.keyboard.press("Enter")
    assert page.get_by_role("status").all_inner_texts() == [
        "Right: 1.5 MiB.", "Too high by a factor of 2.", "Too high by a factor of 4.",
    ]  # fmt: skip
    pictures = page.locator(".cp-picture")
    assert pictures.count() == PICTURES == pictures.locator("> svg[role=img]").count()
    assert page.locator(".cp-player img, .cp-picture img").count() == 0
    # What a page hears, VS Code acts on: Home would leave for another cell, Delete would delete it.
    for key in ("Home", "Delete", "y", "F2", "Control+y"):
        page.keyboard.press(key)
    assert fields.last.locator("input").input_value() == "y"
    assert page.evaluate("heard") == ["F2", "Control", "y"]


def test_without_scripts_every_picture_is_still_there(browser: Any, executed: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    in_place(page, executed)
    images = page.locator(".cp-player img, .cp-picture img")
    assert images.count() == PLAYERS + PICTURES
    for image in images.all():
        assert (image.bounding_box() or {})["height"] > 50
        assert len(image.get_attribute("alt") or "") > 40
    context.close()
