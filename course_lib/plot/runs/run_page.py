"""Runs as one page that needs nothing beside it: a table of where they are, and their curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from course_lib.plot.player.style import FONT, INK, LINE, PANEL, PAPER
from course_lib.plot.runs.run_curves import Rows, read_runs, run_curves

COLUMNS = ("step", "loss", "validation", "norm", "tokens_per_second", "mfu", "peak_mib")
LOOK = (
    f"body{{font-family:{FONT};color:{INK};background:{PAPER};max-width:60rem;margin:2rem auto;"
    f"padding:0 1rem}}table{{border-collapse:collapse;margin:1rem 0}}th,td{{padding:.3rem .7rem;"
    f"border-bottom:1px solid {LINE};text-align:right}}th{{background:{PANEL}}}"
    "td:first-child,th:first-child{text-align:left}img{margin:1rem 0}"
)


def write_run_page(folders: Sequence[Path], out: Path) -> int:
    """Writes the page; gives the number of its pictures.

    Args:
        folders: of runs, each with a log.
        out: the file.

    Raises:
        Refusal: a folder has no log with a step in it.
    """
    runs = read_runs(folders)
    pictures = [picture.image() for picture in run_curves(runs)]
    title = f"Runs: {', '.join(runs)}"
    out.write_text(
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{LOOK}</style><h1>{escape(title)}</h1>{_table(runs)}{''.join(pictures)}</html>\n",
        encoding="utf-8",
    )
    return len(pictures)


def _table(runs: Mapping[str, Rows]) -> str:
    """The newest of each number, a row a run."""
    used = [name for name in COLUMNS if any(name in row for rows in runs.values() for row in rows)]
    lines = []
    for run, rows in runs.items():
        newest = {name: row[name] for row in rows for name in used if name in row}
        cells = "".join(f"<td>{newest.get(name, ''):.6g}</td>" if name in newest else "<td></td>"
                        for name in used)  # fmt: skip
        lines.append(f"<tr><td>{escape(run)}</td>{cells}</tr>")
    heads = "".join(f"<th>{escape(name.replace('_', ' '))}</th>" for name in used)
    return f"<table><tr><th>run</th>{heads}</tr>{''.join(lines)}</table>"
