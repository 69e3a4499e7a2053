"""The folder that Sphinx reads: copies of the course's pages, and pages made for the site alone.

A copy has the place of its original, so links between pages hold. A file of another kind, such as
an exercise, becomes a page with its text, and links to it lead there.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

from docs.site.contents import BUILT, contents, exercise_list, reference

LINK = re.compile(r"(?<=\]\()(?!\w+:|#)(?P<to>[^)\s#]+)(?P<anchor>#[^)\s]*)?(?=\))")
HREF = re.compile(r'(?<=href=")(?!\w+:)(?P<to>[^"#]+)(?P<kind>\.py|\.ipynb)(?=")')  # in outputs
PAGES, PICTURES = {".md", ".ipynb"}, {".png", ".svg"}
LANGUAGE = {".py": "python", ".sbatch": "bash"}
HIDDEN = "remove-input"  # what MyST-NB calls a cell of which only the output is shown
LESSON = "Write your answer into this file, then grade it: `%grade {name}` in lesson {lesson}."


def _page(found: re.Match[str]) -> str:
    """Where an output's link to a lesson or an exercise leads on the site."""
    return found["to"] + (".html" if found["kind"] == ".ipynb" else ".py.html")


class Stage:
    """A course folder, and what of it the site has.

    Args:
        root: the course's folder.
        target: an empty folder, which Sphinx reads afterwards.
    """

    def __init__(self, root: Path, target: Path) -> None:
        self.root, self.target = root.resolve(), target
        self.lessons = sorted((self.root / "notebooks").glob("[0-9A][0-9]_*.ipynb"))
        self.done: set[Path] = set()
        self.waiting: list[Path] = []

    def fill(self) -> None:
        """Copies the pages and whatever they link to, then adds the pages of the site alone."""
        documents = (self.root / name for name in BUILT)
        self.waiting = [file for file in documents if file.is_file()] + self.lessons
        while self.waiting:
            source = self.waiting.pop()
            if source not in self.done:
                self.done.add(source)
                self._copy(source)
        made = reference(self.root) | exercise_list(self.root, self._exercises())
        for name, text in (made | contents(self.root, self.lessons)).items():
            self._write(name, text)

    def _exercises(self) -> list[Path]:
        return sorted(path for path in self.done if path.is_relative_to(self.root / "exercises"))

    def _copy(self, source: Path) -> None:
        place = source.relative_to(self.root).as_posix()
        if source.suffix in PICTURES:
            (self.target / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, self.target / place)
        elif source.suffix == ".ipynb":
            self._write(place, json.dumps(self._notebook(source)))
        elif source.suffix == ".md":
            self._write(place, self._linked(source.read_text(encoding="utf-8"), source))
        else:
            self._write(f"{place}.md", self._code(source))

    def _notebook(self, source: Path) -> Any:
        """A notebook whose cells show what a reader sees in JupyterLab, and no more."""
        notebook = json.loads(source.read_text(encoding="utf-8"))
        for cell in notebook["cells"]:
            if cell["cell_type"] == "markdown":
                cell["source"] = self._linked("".join(cell["source"]), source)
            elif cell["metadata"].get("jupyter", {}).get("source_hidden"):  # the answer is in it
                cell["metadata"]["tags"] = [*cell["metadata"].get("tags", []), HIDDEN]
            for output in cell.get("outputs", []):
                if "text/html" in (data := output.get("data", {})):
                    data["text/html"] = HREF.sub(_page, "".join(data["text/html"]))
        return notebook

    def _code(self, source: Path) -> str:
        """A file as a page: its name, where it belongs, its text."""
        text = source.read_text(encoding="utf-8")
        title = source.stem if source.suffix == ".py" else source.name
        place = source.relative_to(self.root)
        listed = place.parts[0] == "exercises"  # and so in the order of pages
        head = "" if listed else "---\norphan: true\n---\n\n"
        lines = [f"{head}# {title}", f"`{place.as_posix()}`"]
        number = re.match(r"exercises/(\d\d)_", place.as_posix())
        for lesson in self.lessons:
            if number and lesson.name.startswith(number[1]):
                way = os.path.relpath(lesson, source.parent)
                lines.append(LESSON.format(name=title, lesson=f"[]({way})"))
        fence = "~" * 8
        lines.append(f"{fence}{LANGUAGE.get(source.suffix, 'text')}\n{text}\n{fence}")
        return "\n\n".join(lines) + "\n"

    def _linked(self, text: str, source: Path) -> str:
        """The text, with links to files that are no pages led to the pages made of them."""

        def lead(found: re.Match[str]) -> str:
            file = Path(os.path.normpath(source.parent / found["to"]))
            if not (file.is_file() and file.is_relative_to(self.root)):
                return found[0]  # Sphinx, or the check of the pages, names it
            self.waiting.append(file)
            page = "" if file.suffix in PAGES | PICTURES else ".md"
            return f"{found['to']}{page}{found['anchor'] or ''}"

        return LINK.sub(lead, text)

    def _write(self, name: str, text: str) -> None:
        place = self.target / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
