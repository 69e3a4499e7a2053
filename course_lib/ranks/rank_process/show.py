"""What a rank shows of its values and its errors."""

from __future__ import annotations

import ast
import asyncio
import base64
import sys
import traceback
from pathlib import Path
from typing import Any

import cloudpickle

OURS = ("worker.py", "shell.py", "keyboard.py", "output.py", "source.py", "show.py")
LONGEST = 50_000  # characters of an error that are shown: its beginning and its end
DEBUGGER = ("bdb.py", "cmd.py", "pdb.py")
# Frames of these files are not the reader's: who parses, runs and records a cell, and packs its
# values.
HIDDEN = (
    *(str(Path(__file__).with_name(name)) for name in OURS),
    *(str(Path(ast.__file__).with_name(name)) for name in DEBUGGER),
    str(Path(asyncio.__file__).parent),
    str(Path(__file__).parents[1] / "pool" / "pack.py"),
    str(Path(__file__).parents[2] / "spmd" / "record.py"),
    str(Path(cloudpickle.__file__).parent),
    ast.__file__,
    "<frozen",
)


def own_traceback(error: BaseException, hidden: tuple[str, ...] = HIDDEN) -> str:
    """The traceback from the program's own first line on: without the frames of `hidden` files."""
    told = traceback.TracebackException.from_exception(error, capture_locals=False)
    link: traceback.TracebackException | None = told
    while link is not None:
        link.stack = traceback.StackSummary.from_list(
            [frame for frame in link.stack if not frame.filename.startswith(hidden)]
        )
        link = link.__cause__ or link.__context__
    return _short("".join(told.format()))


def _short(text: str) -> str:
    """What a reader can take in of a text."""
    if len(text) <= LONGEST:
        return text
    half = LONGEST // 2
    return f"{text[:half]} … {len(text) - LONGEST} more characters … {text[-half:]}"


def text_of(error: BaseException) -> str:
    """The error's message, also of one that has none to give."""
    try:
        return _short(str(error))
    except Exception:
        return "(its text cannot be shown)"


def own_line(error: BaseException) -> int:
    """The last line of the program's own that the error passed through; 0 if there is none."""
    if isinstance(error, SyntaxError):
        return error.lineno or 0
    lines = [
        frame.lineno or 0
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename.startswith("Cell")
    ]
    return lines[-1] if lines else 0


def mime_bundle(value: Any) -> dict[str, str]:
    """What a notebook can show of a value, by MIME type; pictures are in base64."""
    if isinstance(value, dict) and value and all("/" in str(key) for key in value):
        return {str(key): str(text) for key, text in value.items()}
    bundle = {"text/plain": repr(value)}
    forms = {"_repr_html_": "text/html", "_repr_svg_": "image/svg+xml",
             "_repr_markdown_": "text/markdown", "_repr_png_": "image/png"}  # fmt: skip
    for method, mime in forms.items():
        shown = getattr(value, method, None)
        content = shown() if callable(shown) and not isinstance(value, type) else None
        if isinstance(content, bytes):
            content = base64.b64encode(content).decode()
        if isinstance(content, str):
            bundle[mime] = content
    return bundle


def show_figures() -> None:
    """Shows the figures that a program has drawn with pyplot, if it has used it at all."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None and pyplot.get_fignums():
        pyplot.show()
