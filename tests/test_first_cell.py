"""The first cell of every lesson, in a kernel that has Jupyter and torch, but not the course."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

ROOT = Path(__file__).resolve().parents[1]
LESSONS = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
TEXT = (ROOT / "docs" / "install.md").read_text()
(CELL,) = re.findall(r"```python\n(import importlib.*?)\n```", TEXT, re.S)
(ADDRESS,) = re.findall(r"https://github\.com/\S+", CELL)
LACKING = "cloudpickle"  # what the bare kernel has not got; a wheel of it lies ready
PARTS = ("course_lib", "install.py", "pyproject.toml", "requirements.txt", "exercises", "grading")


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with links to the packages that the tests have, but for one."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder / "env", with_pip=True)
    (target,) = (folder / "env").glob("lib/python*/site-packages")
    mine = Path(sysconfig.get_path("purelib"))
    given = {path.name for path in target.iterdir()}
    for path in mine.iterdir():
        hidden = path.suffix == ".pth" or path.name.startswith((LACKING, "course_lib"))
        if path.name not in given and not hidden:
            (target / path.name).symlink_to(path)
    with zipfile.ZipFile(folder / f"{LACKING}-{_version(mine)}-py3-none-any.whl", "w") as archive:
        for path in sorted(mine.glob(f"{LACKING}*/**/*.py")) + sorted(mine.glob(f"{LACKING}-*/*")):
            archive.write(path, path.relative_to(mine))
    kernel = folder / "jupyter" / "kernels" / "bare"
    kernel.mkdir(parents=True)
    argv = [str(folder / "env/bin/python"), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (kernel / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": "bare"}))
    return folder


def _version(packages: Path) -> str:
    (found,) = packages.glob(f"{LACKING}-*.dist-info")
    return found.name.removesuffix(".dist-info").partition("-")[2]


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the cell clones."""
    folder = tmp_path_factory.mktemp("host") / "repository"
    (folder / "notebooks").mkdir(parents=True)
    (folder / "notebooks" / "placeholder").touch()
    for name in PARTS:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name)
    git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "all"]):
        subprocess.run([*git, *words], check=True)
    return folder


def outputs(
    bare: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, address: str, *cells: str
) -> list[str]:
    """Runs the first cell and others in the bare kernel; what each printed."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setenv("JUPYTER_PATH", str(bare / "jupyter"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(bare))
    book = new_notebook(cells=[new_code_cell(c) for c in (CELL.replace(ADDRESS, address), *cells)])
    client: Any = NotebookClient(
        book, kernel_name="bare", timeout=240, resources={"metadata": {"path": str(folder)}}
    )
    client.execute()
    return ["".join(map(_text, cell.outputs)) for cell in book.cells]


def _text(output: Any) -> str:
    """What an output says, printed or displayed."""
    return str(output.get("text") or output.get("data", {}).get("text/plain", ""))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("git") is None, reason="the cell clones with git")
def test_a_page_alone_fetches_the_course(
    bare: Path, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, ranks, where = outputs(
        bare, tmp_path, monkeypatch, f"file://{repository}",
        "%%ranks 2\nx = torch.ones(1)\ncomm.all_reduce(x, group)\nprint(x.item())",
        f"import course_lib, {LACKING}, os, sys\n"
        f"print(os.getcwd(), course_lib.__file__, {LACKING}.__file__, len(sys.path), sep='\\n')",
    )  # fmt: skip
    assert "The course is in course/, 1 packages beside" in first
    assert "ranks 0–1 │ 2.0" in ranks
    cwd, library, lacking, _ = where.split()
    course = tmp_path / "course"
    assert (Path(cwd), Path(library)) == (course / "notebooks", course / "course_lib/__init__.py")
    assert course / ".kernel" in Path(lacking).parents
    (packages,) = (bare / "env").glob("lib/python*/site-packages")
    assert not list(packages.glob(f"{LACKING}*")), "the kernel's own packages stay as they are"


@pytest.mark.slow
def test_in_a_clone_nothing_is_fetched_twice(
    bare: Path, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clone = tmp_path / "clone"
    shutil.copytree(repository, clone)
    cells = ("%%ranks 2\nprint(rank)",)
    for _ in range(2):
        first, ranks = outputs(bare, clone / "notebooks", monkeypatch, "file:///nowhere", *cells)
        assert "The course is in clone/" in first and "rank 1 │ 1" in ranks
    assert "Collecting" not in first and not (clone / "notebooks" / "course").exists()


@pytest.mark.slow
def test_where_the_course_is_installed_the_cell_only_loads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    book = new_notebook(cells=[new_code_cell(CELL), new_code_cell("%%ranks 2\nprint(rank)")])
    NotebookClient(book, timeout=240, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert book.cells[0].outputs == [] and not list(tmp_path.iterdir())


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_lessons_begin_with_it(path: Path) -> None:
    first = next(c for c in nbformat.read(path, 4).cells if c.cell_type == "code").source
    assert first == CELL


def test_python_is_said_to_be_too_old(tmp_path: Path) -> None:
    """The one sentence that an old Python must still be able to read."""
    text = (ROOT / "install.py").read_text().replace("OLDEST = (3, 11)", "OLDEST = (9, 9)")
    (tmp_path / "install.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "install.py"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 1 and "it needs 3.11 or newer" in done.stderr
