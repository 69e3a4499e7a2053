"""A JupyterLab on a copy of the reader's files, and a browser; skipped where one is missing."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.notebook.lab import Missing, Notebook, Server, jupyter_path

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory, untouched: Path) -> Path:
    """A reader's files at the start: notebooks, exercises, and what notebooks read beside them."""
    copy = tmp_path_factory.mktemp("reader") / "course"
    for folder in ("notebooks", "exercises"):
        shutil.copytree(untouched / folder, copy / folder, ignore=shutil.ignore_patterns(".*"))
    (copy / "grading").symlink_to(untouched / "grading")
    return copy


@pytest.fixture(scope="module")
def lab(browser: Any, course: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The server; no process of it may live on after its end."""
    try:
        jupyter_path()
    except Missing as missing:
        pytest.skip(str(missing))
    server = Server(course, tmp_path_factory.mktemp("lab"))
    yield server
    assert server.close() == [], "these outlived the server"


@pytest.fixture
def notebook(browser: Any, lab: Server) -> Iterator[Callable[[str], Notebook]]:
    """`notebook(path)`: an open notebook; nothing may have gone wrong on its page at the end."""
    opened: list[Notebook] = []

    def start(path: str) -> Notebook:
        opened.append(Notebook(browser, lab, path))
        return opened[-1]

    yield start
    for one in opened:
        one.close()
    assert lab.end_kernels() == [], "these outlived their kernels"
    assert [fault for one in opened for fault in one.faults] == []
