"""The script that brings an output to life: a player, an answer field, or a picture."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any


def live_script(kind: str, name: str = "", data: Mapping[str, Any] | None = None) -> str:
    """A script that makes the element of class `cp-KIND` beside it a live one.

    Args:
        kind: of element; `KIND.js` says what is done with it.
        name: the element's `aria-label`, which tells it from others of its kind in the output.
        data: what `KIND.js` is given.
    """
    code = "".join(_source(part) for part in ("claim", kind))
    find = f"claim({_literal(f'cp-{kind}')}, {_literal(name)})"
    return (
        f"<script>(function(){{\n{code}const root = {find};\n"
        f"if (root) live(root, {_literal(data or {})});\n}})()</script>"
    )


def _source(name: str) -> str:
    return files("course_lib.plot.player").joinpath(f"{name}.js").read_text(encoding="utf-8")


def _literal(value: Any) -> str:
    """A value as JavaScript that cannot end the script element it stands in."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.replace("</", "<\\/").replace("<!--", "<\\!--")
