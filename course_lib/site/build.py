"""The whole site: README, notebooks, and every file of the course that a page links to."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

from course_lib.site.pages import markdown_page, notebook_page, python_page

REPOSITORY = re.compile(r'^Repository = "https://github\.com/(?!OWNER/)([^"]+)"', re.M)
COLAB = '<a href="https://colab.research.google.com/github/{0}/blob/main/{1}">run it in Colab</a>'
LINK = re.compile(r'(?P<before>\b(?:href|src)=")(?P<to>[^"#]+)(?P<anchor>#[^"]*)?"')
PAGES: dict[str, Callable[[Path, str], str]] = {
    ".ipynb": notebook_page,
    ".py": python_page,
    ".md": markdown_page,
}


class Site:
    """A course folder, and the pages made of it so far.

    Args:
        root: the course's folder.
        target: where pages go; what is there is replaced.
    """

    def __init__(self, root: Path, target: Path) -> None:
        self.root, self.target = root.resolve(), target
        self.lessons = sorted((self.root / "notebooks").glob("*.ipynb"))
        self.made: dict[Path, Path] = {}
        self.waiting: list[Path] = []

    def build(self) -> list[Path]:
        """Makes the first page, all lessons, and whatever they link to; returns all pages."""
        if self.target.exists():
            shutil.rmtree(self.target)
        self.waiting = [self.root / "README.md", *self.lessons]
        while self.waiting:
            self._make(self.waiting.pop(0))
        return list(self.made.values())

    def page_of(self, source: Path) -> Path:
        """Where a file's page is, relative to the site; the README is the first page."""
        place = source.relative_to(self.root)
        if place == Path("README.md"):
            return Path("index.html")
        return place.with_suffix(".html") if place.suffix in PAGES else place

    def _make(self, source: Path) -> None:
        if source in self.made:
            return
        place = self.target / self.page_of(source)
        self.made[source] = place
        place.parent.mkdir(parents=True, exist_ok=True)
        maker = PAGES.get(source.suffix)
        if maker is None:
            shutil.copyfile(source, place)
            return
        text = maker(source, self._way(source))
        place.write_text(self._linked(text, source), encoding="utf-8")

    def _way(self, source: Path) -> str:
        """Links to the lesson before and after, and to the first page; written as in the source."""
        up = "../" * len(source.relative_to(self.root).parts[1:])
        home = f'<a href="{up}README.md">all lessons</a>'
        if source not in self.lessons:
            return "" if source.name == "README.md" else f'<div class="way">{home}</div>'
        here = self.lessons.index(source)
        before = self.lessons[here - 1].name if here else ""
        after = self.lessons[here + 1].name if here + 1 < len(self.lessons) else ""
        links = [f'<a href="{name}">{words}</a>' if name else "<span></span>"
                 for name, words in ((before, "← before"), (after, "next →"))]  # fmt: skip
        return f'<div class="way">{links[0]}{home}{self._colab(source)}{links[1]}</div>'

    def _colab(self, source: Path) -> str:
        """A link that runs a lesson elsewhere; "" while nobody said where the course is kept."""
        project = self.root / "pyproject.toml"
        found = REPOSITORY.search(project.read_text(encoding="utf-8")) if project.exists() else None
        return COLAB.format(found[1], source.relative_to(self.root)) if found else ""

    def _linked(self, text: str, source: Path) -> str:
        """The page with its links led to pages; files that it links to are waiting then."""

        def lead(found: re.Match[str]) -> str:
            to = found["to"]
            if re.match(r"[a-z]+:|//", to):
                return found[0]
            file = (source.parent / unquote(to)).resolve()
            if not (file.is_file() and file.is_relative_to(self.root)):
                return found[0]  # the check names it
            self.waiting.append(file)
            up = "../" * (len(self.page_of(source).parts) - 1)
            return f'{found["before"]}{up}{self.page_of(file).as_posix()}{found["anchor"] or ""}"'

        return LINK.sub(lead, text)


def build(root: Path, target: Path) -> list[Path]:
    """Builds the site of the course in `root` into `target`; returns its pages."""
    return Site(root, target).build()
