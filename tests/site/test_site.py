"""The static site: links led to pages, hidden answers hidden, and faults named."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from course_lib.site import broken_links, build

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def course(tmp_path: Path) -> Path:
    """A course of two lessons, an exercise and a picture."""
    root = tmp_path / "course"
    for folder in ("notebooks/images", "exercises/01_first"):
        (root / folder).mkdir(parents=True)
    (root / "README.md").write_text("# A course\n\n[one](notebooks/01_first.ipynb)\n")
    (root / "exercises" / "01_first" / "sum.py").write_text("def sum(a, b):\n    return a + b\n")
    (root / "notebooks" / "images" / "ring.png").write_bytes(b"\x89PNG")
    first = new_notebook(cells=[
        new_markdown_cell("# 01 · First\n\nA mean is $\\frac{a + b}{2}$; it costs 5 $ or 6 $.\n\n"
                          "[file](../exercises/01_first/sum.py), [next](02_second.ipynb#Part-two)"),
        new_code_cell("answer = secret_number", metadata={"jupyter": {"source_hidden": True}},
                      outputs=[new_output("stream", text="shown")]),
    ])  # fmt: skip
    second = new_notebook(cells=[new_markdown_cell("# 02 · Second\n\n## Part two\n")])
    nbformat.write(first, root / "notebooks" / "01_first.ipynb")
    nbformat.write(second, root / "notebooks" / "02_second.ipynb")
    return root


def test_pages_follow_links(course: Path, tmp_path: Path) -> None:
    target = tmp_path / "site"
    pages = build(course, target)
    assert {page.relative_to(target).as_posix() for page in pages} == {
        "index.html", "notebooks/01_first.html", "notebooks/02_second.html",
        "exercises/01_first/sum.html",
    }  # fmt: skip
    assert broken_links(pages) == []
    assert 'href="notebooks/01_first.html"' in (target / "index.html").read_text()
    first = (target / "notebooks" / "01_first.html").read_text()
    assert 'href="../exercises/01_first/sum.html"' in first
    assert 'href="../notebooks/02_second.html#Part-two"' in first
    assert 'href="../index.html">all lessons' in first
    assert "return" in (target / "exercises" / "01_first" / "sum.html").read_text()


def test_lessons_can_be_run_elsewhere_once_the_address_is_known(
    course: Path, tmp_path: Path
) -> None:
    project = course / "pyproject.toml"
    for repository, links in (("OWNER/REPO", 0), ("ada/course", 2)):
        project.write_text(f'[project.urls]\nRepository = "https://github.com/{repository}"\n')
        assert broken_links(build(course, tmp_path / "site")) == []
        first = (tmp_path / "site" / "notebooks" / "01_first.html").read_text()
        assert first.count("/github/ada/course/blob/main/notebooks/01_first.ipynb") == links


def test_formulas_are_pictures_and_prices_are_not(course: Path, tmp_path: Path) -> None:
    build(course, tmp_path / "site")
    first = (tmp_path / "site" / "notebooks" / "01_first.html").read_text()
    assert first.count(r'<img alt="\frac{a + b}{2}" src="data:image/svg+xml,') == 1
    assert "it costs 5 $ or 6 $." in first


def test_a_hidden_answer_stays_hidden(course: Path, tmp_path: Path) -> None:
    build(course, tmp_path / "site")
    first = (tmp_path / "site" / "notebooks" / "01_first.html").read_text()
    assert "secret_number" not in first and "shown" in first


def test_no_page_needs_the_network(course: Path, tmp_path: Path) -> None:
    for page in build(course, tmp_path / "site"):
        assert "cdnjs" not in page.read_text() and "<script src=" not in page.read_text()


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[x](notebooks/03_third.ipynb)", "index.html links to notebooks/03_third.ipynb, which is"),
        ("[x](notebooks/02_second.ipynb#Part-ten)", "a place that is not in that page"),
        ("![x](images/gone.png)", "index.html loads images/gone.png, which is not there"),
        ('<img src="https://example.org/a.png">', "which needs the network"),
    ],
)
def test_faults_are_named(course: Path, tmp_path: Path, text: str, fault: str) -> None:
    with (course / "README.md").open("a") as readme:
        readme.write(f"\n{text}\n")
    faults = broken_links(build(course, tmp_path / "site"))
    assert len(faults) == 1 and fault in faults[0]


def test_an_older_site_is_replaced(course: Path, tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "old.html").write_text("old")
    build(course, tmp_path / "site")
    assert not (tmp_path / "site" / "old.html").exists()


@pytest.mark.slow
def test_the_course_itself(tmp_path: Path, untouched: Path) -> None:
    """The command, over all lessons; it fails if a link leads nowhere."""
    course = tmp_path / "course"
    shutil.copytree(untouched, course, ignore=shutil.ignore_patterns(".*", "mutants", "site-*"))
    command = [sys.executable, "-m", "course_lib.site", str(tmp_path / "site")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=course)
    assert done.returncode == 0, done.stdout
    assert len(list((tmp_path / "site" / "notebooks").glob("*.html"))) == 17
    assert len(list((tmp_path / "site" / "exercises").rglob("*.html"))) > 90
