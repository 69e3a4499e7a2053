"""Whether every link of a site leads somewhere, and no page needs the network."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {"stylesheet", "icon", "preload", "modulepreload", "manifest"}  # of <link rel>
FETCHED = re.compile(r"""(?:@import\s+|url\(\s*)["']?((?:https?:)?//[^"')\s]+)""")


class _Page(HTMLParser):
    """What a page links to, what it loads, and the places in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """One tag."""
        found = {name: value or "" for name, value in attrs}
        self.places |= {found.get("id", ""), found.get("name", "")}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        elif tag == "link" and LOADED & set(found.get("rel", "").split()):
            self.loaded.append(found["href"])
        elif "src" in found:
            self.loaded.append(found["src"])


def faults(site: Path) -> list[str]:
    """What is wrong with the site in a folder, a sentence each; empty if nothing is."""
    pages = _pages(site)
    found = [fault for page in pages for fault in _faults(page, pages, site)]
    for sheet in sorted(site.rglob("*.css")):
        for address in FETCHED.findall(sheet.read_text(encoding="utf-8")):
            found.append(f"{sheet.relative_to(site)} loads {address}, which needs the network")
    return found


def outside(site: Path) -> list[str]:
    """Addresses elsewhere that pages link to; nobody asks whether they are still there."""
    links = {link for page in _pages(site).values() for link in page.links}
    return sorted(link for link in links if urlsplit(link).scheme in ("http", "https"))


def _pages(site: Path) -> dict[Path, _Page]:
    """Every page; what themes keep in `_static` are templates."""
    paths = (path for path in sorted(site.rglob("*.html")) if "_static" not in path.parts)
    return {path.resolve(): _Page(path.read_text(encoding="utf-8")) for path in paths}


def _faults(path: Path, pages: dict[Path, _Page], site: Path) -> Iterator[str]:
    name = path.relative_to(site.resolve())
    for address in pages[path].loaded:
        parts = urlsplit(address)
        if parts.scheme in ("http", "https") or address.startswith("//"):
            yield f"{name} loads {address}, which needs the network"
        elif parts.scheme != "data" and not (path.parent / unquote(parts.path)).is_file():
            yield f"{name} loads {address}, which is not there"
    for address in pages[path].links:
        parts = urlsplit(address)
        if parts.scheme or parts.netloc:
            continue
        file = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        if not file.is_file():
            yield f"{name} links to {address}, which is not there"
        elif parts.fragment and file in pages and not _has(pages[file], parts.fragment):
            yield f"{name} links to {address}, a place that is not in that page"


def _has(page: _Page, place: str) -> bool:
    """Whether a page has such a place, by its name or as an address writes it."""
    return bool({place, unquote(place)} & page.places)
