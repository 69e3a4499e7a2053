"""The course as its reader meets it: a real JupyterLab, a real browser, keys and clicks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.notebook.lab import Notebook, Server
from course_lib.grade.catalog import find

ROOT = Path(__file__).resolve().parents[2]
Open = Callable[[str], Notebook]
PICTURE = ".widget-html svg[role=img]"


@contextlib.contextmanager
def redrawn(page: Any, picture: Any) -> Any:
    """What is done inside has to change the picture, sooner or later."""
    before = picture.inner_html()
    yield
    page.wait_for_function("([now, before]) => now.innerHTML !== before",
                           arg=[picture.element_handle(), before])  # fmt: skip


@pytest.fixture
def pipeline(notebook: Open) -> Notebook:
    """Notebook 08, its imports run."""
    lesson = notebook("notebooks/08_pipeline.ipynb")
    lesson.run("%load_ext course_lib")
    lesson.run("from course_lib import plot")
    return lesson


def test_the_front_door_opens(notebook: Open) -> None:
    front = notebook("notebooks/00_ranks_and_the_ledger.ipynb")
    assert front.page.locator(".jp-Notebook h1").first.inner_text().startswith("00 · ")
    front.run("%load_ext course_lib")
    table = front.output(front.run("%progress")).locator("table")
    table.wait_for()
    lessons = sorted(ROOT.glob("notebooks/[0-9]*.ipynb"))  # the appendices have no exercises
    links = table.locator("a[href*='.ipynb']")
    assert links.count() == len(lessons)
    links.nth(1).click()  # leads on into the course, in the same JupyterLab
    front.page.locator(".lm-TabBar-tabLabel", has_text=lessons[1].name).wait_for()


def test_a_whole_lesson_runs(notebook: Open) -> None:
    lesson = notebook("notebooks/03_gradient_accumulation.ipynb")
    lesson.run_all()
    cells = lesson.cells()
    assert [cell["source"] for cell in cells if cell["raised"]] == []
    assert [cell["count"] for cell in cells] == list(range(1, len(cells) + 1))
    for kind in ("stderr", "error"):
        wrong = lesson.page.locator(f'[data-mime-type="application/vnd.jupyter.{kind}"]')
        assert wrong.all_inner_texts() == []
    assert lesson.page.locator(".jp-OutputArea [role=img], .jp-OutputArea img").count() >= 2


def test_a_slider_changes_the_picture(pipeline: Notebook) -> None:
    output = pipeline.output(pipeline.run("plot.schedule_explorer()"))
    picture, page = output.locator(PICTURE), pipeline.page
    assert "4 ranks, 8 micro-batches" in (picture.get_attribute("aria-label") or "")
    row = output.locator(".widget-inline-hbox", has_text="m, micro-batches")
    with redrawn(page, output.locator(".widget-html").last):
        row.locator(".noUi-handle").press("ArrowRight")
    assert row.locator(".widget-readout").inner_text() == "9"
    assert "9 micro-batches" in (picture.get_attribute("aria-label") or "")
    with redrawn(page, output.locator(".widget-html").last):
        output.locator("select").select_option("ZB-H1")
    assert "ZB-H1" in (picture.get_attribute("aria-label") or "")
    # One picture of two is to be seen: the still one is for those without a kernel.
    assert output.locator(".cp-explorer-still").count() == 1
    assert output.locator("svg[role=img], img").locator("visible=true").count() == 1


def test_a_stepper_steps_and_keeps_its_keys(pipeline: Notebook) -> None:
    index = pipeline.run("plot.schedule_grid(simulate(gpipe(4, 8))")
    output, page = pipeline.output(index), pipeline.page
    stage, count = output.locator(".cp-stage"), output.locator(".cp-count")
    last = int(count.inner_text().split("/")[1])
    output.get_by_role("slider").press("Home")
    selected = page.locator(".jp-Cell.jp-mod-selected").first.inner_text()
    for number in (2, 3, 4):
        with redrawn(page, stage):
            page.keyboard.press("ArrowRight")
        assert count.inner_text() == f"{number} / {last}"
    with redrawn(page, stage):
        page.keyboard.press("ArrowLeft")
    assert count.inner_text() == f"3 / {last}"
    with redrawn(page, stage):
        output.get_by_label("Forward").click()
    assert count.inner_text() == f"4 / {last}"
    with redrawn(page, stage):
        page.keyboard.press("End")
    assert output.get_by_label("Forward").get_attribute("aria-disabled") == "true"
    # JupyterLab would have gone to another cell, or collapsed a heading.
    assert page.locator(".jp-Cell.jp-mod-selected").first.inner_text()[:40] == selected[:40]
    assert page.evaluate("() => !!document.activeElement.closest('.cp-player')")


def test_an_exercise_is_solved_on_the_page(notebook: Open, course: Path) -> None:
    entry = find("hello_mesh", ROOT)
    place = entry.path.relative_to(ROOT)
    mine = entry.path.read_bytes() if entry.path.is_file() else None
    lesson = notebook("notebooks/00_ranks_and_the_ledger.ipynb")
    lesson.run("%load_ext course_lib")
    index = lesson.run("%grade hello_mesh")
    card = lesson.output(index)
    assert f"0 of {entry.points} points" in card.inner_text()
    assert "Nothing is written yet" in card.inner_text(), "it is said what to do"
    assert "Traceback" not in card.inner_text()
    solution = entry.solution.read_text()
    lesson.write(index, f"%%grade hello_mesh\n{solution}")
    assert (course / place).read_text() == solution
    assert f"{entry.points} of {entry.points} points" in card.inner_text()
    assert "All checks passed" in card.inner_text()
    assert mine is None or entry.path.read_bytes() == mine, "the reader's own file is another"


def test_ending_the_server_ends_kernels_and_ranks(
    browser: Any, course: Path, tmp_path: Path
) -> None:
    server = Server(course, tmp_path)
    try:
        lesson = Notebook(browser, server, "notebooks/00_ranks_and_the_ledger.ipynb")
        for words in ("%load_ext course_lib", "%ranks 4", "hello from the same line of code"):
            index = lesson.run(words)
        assert "ranks 0–3 │ hello" in lesson.output(index).inner_text()
        assert len(server.below()) >= 6, "a kernel, the preloaded process and four ranks"
        lesson.close()
    finally:
        left = server.close()
    assert left == []
