"""A small course as a site: links led to pages, hidden answers hidden, faults named."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

pytest.importorskip("myst_nb", reason="Sphinx is not installed; `make site` installs it")

from docs.site.build import build  # noqa: E402

PROJECT = '[project.urls]\nRepository = "https://github.com/{}"\n'


def write_course(root: Path) -> None:
    """A course of two lessons, an exercise and a picture."""
    for folder in ("notebooks/images", "exercises/01_first", "course_lib/comm", "docs"):
        (root / folder).mkdir(parents=True)
    (root / "pyproject.toml").write_text(PROJECT.format("OWNER/REPO"))
    (root / "docs" / "install.md").write_text("# Installing\n")
    (root / "README.md").write_text(
        "# A course\n\n## Lessons\n\n[one](notebooks/01_first.ipynb), "
        "[picture](notebooks/images/ring.png)\n\n## More\n\nNothing yet.\n"
    )
    (root / "exercises" / "01_first" / "add.py").write_text(
        '"""Adds two numbers.\n\nThe task."""\n\n\ndef add(a, b):\n    return a + b\n'
    )
    (root / "notebooks" / "images" / "ring.png").write_bytes(b"\x89PNG")
    (root / "course_lib" / "comm" / "__init__.py").write_text('"""Ranks talking."""\n')
    first = new_notebook(cells=[
        new_markdown_cell("# 01 · First\n\nA mean is $\\frac{a + b}{2}$; it costs 5 $ or 6 $.\n\n"
                          "$$\\Big(\\sum_i a_i\\Big)$$\n\n"
                          "[file](../exercises/01_first/add.py), [next](02_second.ipynb#part-two)"),
        new_code_cell("answer = secret_number", metadata={"jupyter": {"source_hidden": True}},
                      outputs=[new_output("stream", text="shown")]),
        new_code_cell("never_run()", outputs=[new_output("stream", text="committed")]),
    ])  # fmt: skip
    second = new_notebook(cells=[new_markdown_cell("# 02 · Second\n\n## Part two\n")])
    nbformat.write(first, root / "notebooks" / "01_first.ipynb")
    nbformat.write(second, root / "notebooks" / "02_second.ipynb")


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The course, its site in `site`."""
    root = tmp_path_factory.mktemp("small") / "course"
    write_course(root)
    (root / "site").mkdir()
    (root / "site" / "old.html").write_text("an older site")
    assert build(root, root / "site") == []
    return root


@pytest.fixture(scope="module")
def first(course: Path) -> str:
    """The page of the first lesson."""
    return (course / "site" / "notebooks" / "01_first.html").read_text()


def test_pages_follow_links_and_replace_an_older_site(course: Path, first: str) -> None:
    site = course / "site"
    made = {path.relative_to(site).as_posix() for path in site.rglob("*.html")}
    assert made >= {
        "index.html", "README.html", "notebooks/01_first.html", "notebooks/02_second.html",
        "exercises/index.html", "exercises/01_first/add.py.html", "reference/comm.html",
        "search.html",
    }  # fmt: skip
    assert "old.html" not in made
    assert 'href="../exercises/01_first/add.py.html"' in first
    assert 'href="02_second.html#part-two"' in first
    exercise = (site / "exercises" / "01_first" / "add.py.html").read_text()
    assert "return" in exercise and 'href="../../notebooks/01_first.html"' in exercise
    assert "Adds two numbers." in (site / "exercises" / "index.html").read_text()


def test_the_first_page_has_the_lessons_of_the_readme(course: Path) -> None:
    page = (course / "site" / "index.html").read_text()
    assert 'href="notebooks/01_first.html">' in page and "Nothing yet." not in page


def test_outputs_are_the_committed_ones(first: str) -> None:
    assert "never_run" in first and "committed" in first


def test_formulas_are_mathml_and_prices_are_not(first: str) -> None:
    assert first.count("<math ") == 2 and "<mfrac>" in first
    assert "it costs 5 $ or 6 $." in first
    assert not re.search(r"<script[^>]*mathjax", first, re.I)


def test_a_hidden_answer_stays_hidden(course: Path, first: str) -> None:
    assert "secret_number" not in first and "shown" in first
    everywhere = [p for p in (course / "site").rglob("*") if p.suffix in {".html", ".js", ".txt"}]
    assert not [p for p in everywhere if "secret_number" in p.read_text()]


def test_lessons_can_be_run_elsewhere_once_the_address_is_known(
    course: Path, first: str, tmp_path: Path
) -> None:
    assert "colab" not in first and "mybinder" not in first
    write_course(tmp_path / "course")
    (tmp_path / "course" / "pyproject.toml").write_text(PROJECT.format("ada/course"))
    assert build(tmp_path / "course", tmp_path / "site") == []
    page = (tmp_path / "site" / "notebooks" / "01_first.html").read_text()
    assert "colab.research.google.com/github/ada/course/blob/main/notebooks/01_first.ipynb" in page
    assert "mybinder.org/v2/gh/ada/course/main" in page


def test_faults_are_named(tmp_path: Path) -> None:
    write_course(tmp_path / "course")
    with (tmp_path / "course" / "README.md").open("a") as readme:
        readme.write(
            "\n[x](notebooks/03_third.ipynb), [y](notebooks/02_second.ipynb#part-ten)\n\n"
            '![z](images/gone.png)\n\n<img src="https://a.example/a.png">\n'
        )
    found = "\n".join(build(tmp_path / "course", tmp_path / "site"))
    for words in ("03_third.ipynb", "part-ten", "images/gone.png", "which needs the network"):
        assert words in found
