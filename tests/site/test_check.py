"""Faults of built pages are named, each by the page that has it; here without Sphinx."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.site.check import faults, outside


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Two pages that link to each other, and a sheet."""
    (tmp_path / "index.html").write_text(
        '<link rel="stylesheet" href="look.css?v=1"><link rel="next" href="https://a.example/2">'
        '<a href="lessons/one.html#part-two">one</a> <a href="https://a.example/1">out</a>'
    )
    (tmp_path / "lessons").mkdir()
    (tmp_path / "lessons" / "one.html").write_text(
        '<h2 id="part-two"><a href="../index.html">up</a>'
    )
    (tmp_path / "look.css").write_text("p{background:url(data:image/png;base64,AA)}")
    return tmp_path


def test_a_whole_site_has_no_faults_and_lists_what_is_elsewhere(site: Path) -> None:
    assert faults(site) == []
    assert outside(site) == ["https://a.example/1"]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('<a href="two.html">', "lessons/three.html links to two.html, which is not there"),
        ('<a href="one.html#three">', "links to one.html#three, a place that is not in that page"),
        ('<img src="gone.png">', "loads gone.png, which is not there"),
        ('<img src="https://a.example/b.png">', "which needs the network"),
        ('<script src="//a.example/b.js"></script>', "which needs the network"),
        ('<link rel="stylesheet" href="https://a.example/b.css">', "which needs the network"),
    ],
)
def test_a_fault_is_named(site: Path, text: str, fault: str) -> None:
    (site / "lessons" / "three.html").write_text(text)
    (found,) = faults(site)
    assert fault in found


def test_a_sheet_that_needs_the_network_is_a_fault(site: Path) -> None:
    (site / "look.css").write_text("@import '//a.example/font.css';")
    (found,) = faults(site)
    assert found == "look.css loads //a.example/font.css, which needs the network"
