"""Whether every link of a site leads somewhere, and no page needs the network."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class _Links(HTMLParser):
    """What a page links to, what it loads, and the places in it."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.places: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """One tag."""
        found = {name: value or "" for name, value in attrs}
        self.places |= {found.get("id", ""), found.get("name", "")}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        elif tag == "link" and "href" in found:
            self.loaded.append(found["href"])
        elif "src" in found:
            self.loaded.append(found["src"])


def broken_links(pages: Iterable[Path]) -> list[str]:
    """What is wrong with a site, a sentence each; empty if nothing is.

    Args:
        pages: files of the site; those that are not HTML are only linked to.
    """
    read: dict[Path, _Links] = {}
    for page in pages:
        if page.suffix == ".html":
            read[page.resolve()] = _Links()
            read[page.resolve()].feed(page.read_text(encoding="utf-8"))
    return [fault for page in read for fault in _faults(page, read)]


def _faults(page: Path, read: dict[Path, _Links]) -> Iterator[str]:
    for address in read[page].loaded:
        if urlsplit(address).scheme in ("http", "https") or address.startswith("//"):
            yield f"{page.name} loads {address}, which needs the network"
        elif not address.startswith("data:") and not (page.parent / unquote(address)).is_file():
            yield f"{page.name} loads {address}, which is not there"
    for address in read[page].links:
        parts = urlsplit(address)
        if parts.scheme:
            continue
        file = (page.parent / unquote(parts.path)).resolve() if parts.path else page
        if not file.is_file():
            yield f"{page.name} links to {address}, which is not there"
        elif parts.fragment and file in read and not _has(read[file], parts.fragment):
            yield f"{page.name} links to {address}, a place that is not in that page"


def _has(page: _Links, place: str) -> bool:
    """Whether a page has such a place; nbconvert writes its names as they are in an address."""
    return bool({place, unquote(place)} & page.places)
