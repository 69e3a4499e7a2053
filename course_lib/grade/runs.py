"""The command `course runs`: curves of training runs, as a page."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add_to(commands: Any) -> None:
    """Adds the command to those of `course`."""
    text = "draw the curves of training runs as one page"
    sub = commands.add_parser("runs", help=text, description=text)
    sub.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="of a run")
    sub.add_argument("--out", type=Path, default=Path("runs.html"), help="the page (runs.html)")
    sub.set_defaults(do=do_runs)


def do_runs(args: argparse.Namespace) -> int:
    """Draws them."""
    from course_lib.plot.runs.run_page import write_run_page  # imports matplotlib

    count = write_run_page(args.folders, args.out)
    print(f"{args.out}: {count} pictures of {len(args.folders)} runs")
    return 0
