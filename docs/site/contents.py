"""The pages that only the site has: its first page, the list of exercises, and the reference."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

HERE = Path(__file__).resolve().parent
READ = (
    "docs/install.md", "docs/using.md", "docs/clusters.md", "docs/debugging.md", "INSTRUCTORS.md",
)  # fmt: skip
BUILD = (
    "docs/architecture.md", "docs/wrappers.md", "docs/glossary.md", "docs/grading.md",
    "docs/decisions.md",
    "CONTRIBUTING.md", "AGENTS.md", "benchmarks/RESULTS.md", "CHANGELOG.md",
)  # fmt: skip
BUILT = ("README.md", *READ, *BUILD)
MADE = ("About <README.md>", "exercises/index.md", "reference/index.md")
# Rooms from the bottom up, as docs/architecture.md has them.
ROOMS = (
    "trace", "schedule", "layout", "data", "model", "comm", "spmd", "parallel", "precision",
    "recompute", "checkpoint", "train", "plan", "cluster", "ranks", "failures", "grade.suite",
    "plot",
)  # fmt: skip
TOCTREE = "```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{entries}\n```\n"
AUTO = """```{{eval-rst}}
.. currentmodule:: {module}

.. autosummary::
   :nosignatures:

{names}

.. automodule:: {module}
   :members:

{constants}
```
"""
CONSTANT = """.. autodata:: {name}
   :no-value:
"""


def contents(root: Path, lessons: list[Path]) -> dict[str, str]:
    """The first page, with the order of all pages."""
    parts = {
        "The course": [MADE[0], *READ],
        "Lessons": [lesson.relative_to(root).as_posix() for lesson in lessons],
        "To look up": list(MADE[1:]),
        "How it is built": list(BUILD),
    }
    text = (HERE / "index.md").read_text(encoding="utf-8")
    for caption, pages in parts.items():
        there = [page for page in pages if page in MADE or (root / page).is_file()]
        text += "\n" + TOCTREE.format(caption=caption, entries="\n".join(there))
    return {"index.md": text}


def exercise_list(root: Path, files: list[Path]) -> dict[str, str]:
    """A page with every exercise under its lesson, and the first sentence of its task."""
    lines = ["# Exercises", "", "Each is one small file, graded on real processes.", ""]
    lesson = ""
    for file in files:
        if file.parent.name != lesson:
            lesson = file.parent.name
            title = _title(next((root / "notebooks").glob(f"{lesson[:2]}_*.ipynb")))
            lines += ["", f"## {title}", "", "| | |", "|---|---|"]
        task = (ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "").split("\n\n")
        first = " ".join(task[0].split())
        lines.append(f"| [{file.stem}]({lesson}/{file.name}.md) | {first} |")
    pages = [f"{file.parent.name}/{file.name}.md" for file in files]
    lines += ["", TOCTREE.format(caption="Exercises", entries="\n".join(pages))]
    return {"exercises/index.md": "\n".join(lines)}


def reference(root: Path) -> dict[str, str]:
    """A page for each room with its public names, and one that lists the rooms."""
    made, rows = {}, ["# Reference", "", "What each room of `course_lib` offers to the others.", "",
                      "| room | |", "|---|---|"]  # fmt: skip
    for room in ROOMS:
        path = root / "course_lib" / room.replace(".", "/") / "__init__.py"
        if not path.is_file():
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        about = (ast.get_docstring(tree) or "").split("\n\n")[0]
        rows.append(f"| [{room}]({room}.md) | {' '.join(about.split())} |")
        names = _public(tree)
        constants = [name for name in names if _constant(root, tree, name)]
        auto = AUTO.format(
            module=f"course_lib.{room}",
            names="\n".join(f"   {name}" for name in names if name not in constants),
            constants="\n".join(CONSTANT.format(name=name) for name in constants),
        )
        made[f"reference/{room}.md"] = f"# {room}\n\n{auto}"
    rows += ["", TOCTREE.format(caption="Reference", entries="\n".join(ROOMS))]
    return made | {"reference/index.md": "\n".join(rows)}


def _public(tree: ast.Module) -> list[str]:
    """The names in a module's `__all__`."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return sorted(ast.literal_eval(node.value), key=str.lower)
    return []


def _constant(root: Path, tree: ast.Module, name: str) -> bool:
    """Whether a public name is neither a class nor a function; `FSDP` is one, `AXES` is not."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and name in [alias.name for alias in node.names]:
            path = root / f"{(node.module or '').replace('.', '/')}.py"
            text = path.read_text(encoding="utf-8") if path.is_file() else ""
            return bool(re.search(rf"^{name}\b.*=", text, re.M))
    return False


def _title(notebook: Path) -> str:
    """A lesson's title, as its first cell has it."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return "".join(cells[0]["source"]).splitlines()[0].removeprefix("# ")
