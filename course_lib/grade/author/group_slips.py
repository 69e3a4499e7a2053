"""The two slips that every answer with a group can have: its place and its size are the world's."""

from __future__ import annotations

import ast
from collections.abc import Iterator

WORLD_SIZE = "int(__import__('os').environ['WORLD_SIZE'])"


def group_slips(source: str) -> Iterator[tuple[str, str]]:
    """A solution with `group.rank` for `group.index`, and one with the world's size for its own.

    Args:
        source: the solution's text. An `.index` or `.size` that is not called is a group's; lists
            and tensors have methods of these names.

    Yields:
        The slip's name and the changed text, for each slip that the solution has a place for.
    """
    tree = ast.parse(source)
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for name, field in (("rank_for_index", "index"), ("world_size_for_size", "size")):
        places = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute)
            and node.attr == field
            and isinstance(node.ctx, ast.Load)
            and id(node) not in called
        ]
        if places:
            yield name, _replaced(source, places)


def _replaced(source: str, places: list[ast.Attribute]) -> str:
    """The text with each `X.index` as `X.rank`, and each `X.size` as the world's."""
    lines = source.encode().splitlines(keepends=True)
    for node in sorted(places, key=lambda n: (n.lineno, n.col_offset), reverse=True):
        owner = ast.unparse(node.value)
        new = f"{owner}.rank" if node.attr == "index" else WORLD_SIZE
        assert node.end_lineno == node.lineno, "a group's name and its field stand on one line"
        line = lines[node.lineno - 1]
        lines[node.lineno - 1] = (
            line[: node.col_offset] + new.encode() + line[node.end_col_offset :]
        )
    return b"".join(lines).decode()
