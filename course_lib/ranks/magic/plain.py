"""A cell with IPython's own syntax as plain Python, which ranks can run: `!ls`, `%time f()`."""

from __future__ import annotations

import ast

from IPython.core.inputtransformer2 import TransformerManager


def plain(cell: str) -> str:
    """The cell as it is if it is Python; else IPython's lines as calls of `get_ipython()`.

    What is no Python afterwards either is given back unchanged, so that the error shows the
    reader's own text.
    """
    if _is_python(cell):
        return cell
    first = len(cell) - len(cell.lstrip("\n"))  # empty lines, which IPython would drop
    try:
        changed = "\n" * first + TransformerManager().transform_cell(cell)
    except SyntaxError:
        return cell
    return changed if _is_python(changed) else cell


def _is_python(source: str) -> bool:
    try:
        ast.parse(source)
    except (SyntaxError, ValueError):  # a ValueError: it has null bytes
        return False
    return True
