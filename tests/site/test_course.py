"""The site of the course itself: every lesson, and its pages in a browser without a network."""

from __future__ import annotations

import functools
import http.server
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest

pytest.importorskip("myst_nb", reason="Sphinx is not installed; `make site` installs it")


from course_lib import comm  # noqa: E402
from docs.site.build import build  # noqa: E402

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
LESSONS = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, untouched: Path) -> Path:
    """The site that COURSE_SITE names, as `make site` does, or one that is built here."""
    if "COURSE_SITE" in os.environ:
        return Path(os.environ["COURSE_SITE"]).absolute()
    course = tmp_path_factory.mktemp("whole") / "course"
    shutil.copytree(untouched, course, ignore=shutil.ignore_patterns(".*", "mutants"))
    assert build(course, course / "site") == []
    return course / "site"


def test_every_lesson_and_exercise_has_a_page(site: Path) -> None:
    written = list((ROOT / "notebooks").glob("[0-9A][0-9]_*.ipynb"))
    assert len(list((site / "notebooks").glob("*.html"))) == len(written)
    exercises = list((site / "exercises").glob("*/*.html"))
    assert len(exercises) == len(list((ROOT / "solutions").glob("*/*.py")))


def test_the_reference_has_every_public_name(site: Path) -> None:
    page = (site / "reference" / "comm.html").read_text()
    for name in comm.__all__:
        assert f'id="course_lib.comm.{name}"' in page, name


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A plain server of files."""

    def log_message(self, *_: Any) -> None:
        """Says nothing."""


@pytest.fixture(scope="module")
def served(site: Path) -> Iterator[str]:
    """The address of a server that knows only files."""
    handler = functools.partial(Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()


@pytest.fixture
def page(browser: Any, served: str) -> Iterator[Any]:
    """An empty page; at the end, nothing may have been an error, or asked of another server."""
    opened, wrong = browser.new_page(base_url=served), []
    opened.set_default_timeout(60_000)
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    opened.on("request", lambda asked: None if asked.url.startswith((served, "data:"))
              else wrong.append(asked.url))  # fmt: skip
    yield opened
    opened.close()
    assert wrong == []


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
def test_steppers_and_answer_fields_work(page: Any, lesson: Path) -> None:
    outputs = [
        output.get("data", {}).get("text/html", "")
        for cell in nbformat.read(lesson, as_version=4).cells
        for output in cell.get("outputs", [])
    ]
    page.goto(f"notebooks/{lesson.stem}.html")
    players, fields = page.locator(".cp-player"), page.locator(".cp-predict")
    assert players.count() == sum('class="cp cp-player"' in html for html in outputs)
    for player in players.all():
        player.get_by_role("slider").press("Home")
        before = player.locator(".cp-stage").inner_html()
        page.keyboard.press("ArrowRight")
        assert player.locator(".cp-count").inner_text().startswith("2 / ")
        assert player.locator(".cp-stage").inner_html() != before
    assert fields.count() >= 1
    for field in fields.all():
        field.locator("input").fill("two")
        page.keyboard.press("Enter")
        assert field.get_by_role("status").inner_text().startswith("That is not a number.")


def test_search_finds_a_lesson_and_a_name(page: Any) -> None:
    for words, found in (("bubble", "notebooks/08_pipeline.html"),
                         ("ring_all_reduce", "reference/comm.html")):  # fmt: skip
        page.goto(f"search.html?q={words}")
        page.locator(f"#search-results a[href*='{found}']").first.wait_for()


def test_pictures_follow_the_theme(page: Any) -> None:
    page.goto("notebooks/08_pipeline.html")
    paper = page.locator(".cp-player svg .paper").first
    shown = set()
    for theme in ("light", "dark"):
        page.evaluate("theme => document.documentElement.dataset.theme = theme", theme)
        shown.add(paper.evaluate("e => getComputedStyle(e).fill"))
    assert len(shown) == 2


def test_lessons_lead_to_the_next(page: Any) -> None:
    page.goto("notebooks/03_gradient_accumulation.html")
    page.locator("a.right-next").click()
    page.wait_for_url("**/04_zero_and_fsdp.html")
    page.locator("a.left-prev").click()
    page.wait_for_url("**/03_gradient_accumulation.html")
