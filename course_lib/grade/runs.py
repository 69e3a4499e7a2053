"""The command `course runs`: curves of training runs as a page, or where two of them part."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from course_lib.trace import Refusal


def add_to(commands: Any) -> None:
    """Adds the command to those of `course`."""
    text = "draw the curves of training runs as one page, or find where two of them part"
    sub = commands.add_parser("runs", help=text, description=text)
    sub.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="of a run")
    sub.add_argument("--out", type=Path, default=Path("runs.html"), help="the page (runs.html)")
    sub.add_argument(
        "--compare", action="store_true", help="two recorded runs: their first difference, no page"
    )
    sub.set_defaults(do=do_runs)


def do_runs(args: argparse.Namespace) -> int:
    """Draws them, or compares two."""
    if args.compare:
        return _compare(args.folders)
    from course_lib.plot.runs.run_page import write_run_page  # imports matplotlib

    count = write_run_page(args.folders, args.out)
    runs = len(args.folders)
    print(f"{args.out}: {count} pictures of {runs} run{'s' * (runs > 1)}")
    return 0


def _compare(folders: list[Path]) -> int:
    """Says where two runs part; 0 if they do not."""
    from course_lib.replay import compared, first_difference, read_recording  # imports torch

    if len(folders) != 2:
        raise Refusal(
            "course runs --compare", f"{len(folders)} folders", "two runs are held together"
        )
    first, second = (read_recording(_recording_in(folder)) for folder in folders)
    print(compared(first, second))
    return 0 if first_difference(first, second) is None else 1


def _recording_in(folder: Path) -> Path:
    """The recording of a run's folder: that of its last start; or the folder itself."""
    starts = folder.glob("recordings/after-*")
    return max(starts, key=lambda path: int(path.name.rpartition("-")[2]), default=folder)
