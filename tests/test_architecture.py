"""The house: who may import whom, how long things may be, and which words are not used."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LIBRARY = ROOT / "course_lib"
FILES = sorted(LIBRARY.rglob("*.py"))

# Chapter order is import order: a room may import the rooms named here, and itself.
MAY_IMPORT: dict[str, set[str]] = {
    "trace": set(),
    "schedule": {"trace"},
    "layout": {"trace", "schedule"},
    "data": {"trace"},
    "model": {"trace"},
    "comm": {"trace"},
    "spmd": {"trace"},
    "parallel": {"comm", "trace", "schedule"},
    "precision": {"comm", "trace"},
    "recompute": {"trace"},
    "checkpoint": {"comm", "trace", "parallel", "recompute"},
    "replay": {"comm", "trace", "checkpoint"},
    "train": {
        "trace",
        "data",
        "model",
        "layout",
        "comm",
        "parallel",
        "schedule",
        "precision",
        "recompute",
        "checkpoint",
        "replay",
        "cluster",
    },
    "plan": {"model", "trace", "schedule", "layout"},
    "cluster": {"comm", "plan", "trace"},
    "ranks": {"comm", "spmd", "trace", "cluster"},
    "failures": {"ranks", "comm", "trace"},
    "grade": {"ranks", "comm", "trace", "plan", "plot", "replay"},
    "lesson": {"trace", "comm", "data", "model"},
    "plot": {"trace", "plan", "schedule", "layout", "replay"},
}
# The same for rooms in a room, which may also import the named files of the room's own level.
INSIDE: dict[str, dict[str, set[str]]] = {
    "grade": {
        "rank": set(),
        "judge": {"rank", "faults"},
        "suite": {"judge", "rank", "checks", "faults"},
        "report": {"catalog", "checks", "faults"},
        "author": {"report", "catalog", "grader"},
        "teach": {"report", "author", "catalog", "grader", "checks", "faults"},
    },
}
# Who may import torch.distributed: the transport, and what starts and watches processes. torch
# loads a checkpoint of ours only through classes derived from its own; that file moves no bytes.
TALKERS = (
    "comm/torch_transport.py",
    "ranks/",
    "grade/rank/",
    "checkpoint/formats/torch_reader.py",
)
# Where no folder has more than 15 files.
DIVIDED = ("course_lib", "grading", "tests", "benchmarks", "docs")
PAGES = ("CONTRIBUTING.md", *(f"docs/{name}.md" for name in (
    "architecture", "decisions", "glossary", "grading")))  # fmt: skip
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
IN_TABLE = "MAY_IMPORT here and both pictures of it in docs/architecture.md"
# Notebook software, and the only places that may know it.
FRONT_END = {"IPython", "ipywidgets", "matplotlib"}
FRONT_ROOMS = ("ranks/magic/", "grade/magic.py", "grade/report/", "plot/")


def imports(path: Path) -> set[str]:
    """Every module that a file imports, also inside functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


def room(path: Path) -> str:
    return path.relative_to(LIBRARY).parts[0]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_one_way(path: Path) -> None:
    mine = room(path)
    if mine not in MAY_IMPORT:
        return  # the package's own __init__ opens the doors of the notebook
    allowed = MAY_IMPORT[mine] | {mine}
    used = {name.split(".")[1] for name in imports(path) if name.startswith("course_lib.")}
    told = f"{path.name} in {mine} imports {used - allowed}; who may is in {IN_TABLE}"
    assert used <= allowed, told
    assert not any(name.split(".")[0] in ("exercises", "solutions") for name in imports(path))


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_inside_a_large_room_go_one_way(path: Path) -> None:
    large, inner, *_ = (*path.relative_to(LIBRARY).with_suffix("").parts, "", "")
    if large not in INSIDE or inner not in INSIDE[large]:
        return  # a file at the room's own level
    prefix = f"course_lib.{large}."
    used = {name[len(prefix) :].split(".")[0] for name in imports(path) if name.startswith(prefix)}
    allowed = INSIDE[large][inner] | {inner}
    told = f"{path.name} in {large}/{inner} imports {used - allowed}; see INSIDE in this file"
    assert used <= allowed, told


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_front_end_only_in_its_places(path: Path) -> None:
    name = str(path.relative_to(LIBRARY))
    if name.startswith(FRONT_ROOMS) or room(path) not in MAY_IMPORT:
        return
    assert not FRONT_END & {module.split(".")[0] for module in imports(path)}


def test_only_the_transport_and_the_ranks_import_torch_distributed() -> None:
    for path in FILES:
        if not str(path.relative_to(LIBRARY)).startswith(TALKERS):
            used = imports(path)
            assert not any(name.startswith("torch.distributed") for name in used), path


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_file_is_one_idea(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= 320, "a file this long is two files"
    assert "utils" not in path.name
    tree = ast.parse(text)
    assert ast.get_docstring(tree), "a file opens with what it is about"
    for node in ast.walk(tree):
        assert not isinstance(node, ast.Global), f"line {node.lineno}: global"
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or 0) - node.lineno + 1
            body = length - len((ast.get_docstring(node, clean=False) or "").splitlines())
            assert body <= 60, f"{path.name}: {node.name} has {body} lines"


@pytest.mark.parametrize("part", DIVIDED)
def test_a_folder_has_at_most_fifteen_files(part: str) -> None:
    folders = Counter(
        str(path.parent.relative_to(ROOT))
        for path in (ROOT / part).rglob("*")
        if path.is_file() and not ({"__pycache__", ".ipynb_checkpoints"} & set(path.parts))
    )
    crowded = {folder: count for folder, count in folders.items() if count > 15}
    assert not crowded, f"put some of these files into a folder of their own: {crowded}"


def test_every_room_is_in_the_table() -> None:
    rooms = {path.parent.name for path in LIBRARY.glob("*/__init__.py")}
    assert rooms == MAY_IMPORT.keys(), f"a new room goes into {IN_TABLE}"


def test_the_page_has_the_same_arrows() -> None:
    """In its table, and in the picture, where each points to a lower floor."""
    rooms = PAGE.partition("## The rooms of course_lib")[2].partition("```")[0]
    rows = re.findall(r"^\| `(\w+)/` \|.*\| ([^|]+) \|$", rooms, flags=re.M)
    table = {name: set(re.findall(r"`(\w+)`", may)) for name, may in rows}
    assert table == MAY_IMPORT, "the table of rooms in docs/architecture.md"
    picture = PAGE.split("```\n")[1].replace("\n" + 24 * " ", " ")
    drawn: dict[str, set[str]] = {}
    floors: dict[str, int] = {}
    floor = 0
    for line in picture.splitlines():
        if line.startswith("floor "):
            floor = int(line[6])
        names, _, targets = re.sub("─+▶", "▶", line[7:]).partition("▶")
        drawn |= {name: set(targets.split()) for name in names.split()}
        floors |= dict.fromkeys(names.split(), floor)
    assert drawn == MAY_IMPORT, "the picture of floors in docs/architecture.md"
    for name, targets in drawn.items():
        assert all(floors[target] < floors[name] for target in targets), name


@pytest.mark.parametrize("page", PAGES)
def test_a_page_names_files_that_are_there(page: str) -> None:
    """By their whole path or by its end; `NAME.py` stands for any."""
    tracked = [f"/{path.relative_to(ROOT)}" for part in (*DIVIDED, "notebooks")
               for path in (ROOT / part).rglob("*.*")]  # fmt: skip
    for name in re.findall(r"`([\w/]+\.(?:py|js))`", (ROOT / page).read_text(encoding="utf-8")):
        if not name.endswith("NAME.py") and not (ROOT / name).exists():
            assert any(path.endswith(f"/{name}") for path in tracked), f"{page} names {name}"
