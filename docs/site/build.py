"""`python -m docs.site.build [DIR]`: the course as pages, by Sphinx; fails if a link is broken."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from docs.site.check import faults, outside
from docs.site.stage import Stage

HERE = Path(__file__).resolve().parent


def build(root: Path, target: Path) -> list[str]:
    """Builds the site of a course.

    Args:
        root: the course's folder.
        target: where pages go; what is there is replaced.

    Returns:
        What is wrong with it, a sentence each: Sphinx's warnings, then what `check` found.
    """
    shutil.rmtree(target, ignore_errors=True)
    with tempfile.TemporaryDirectory() as scratch:
        source, warned = Path(scratch) / "source", Path(scratch) / "warnings.txt"
        Stage(root, source).fill()
        command = [
            sys.executable, "-m", "sphinx", "-Q", "-w", str(warned), "-c", str(HERE),
            "-d", str(Path(scratch) / "doctrees"), str(source), str(target),
        ]  # fmt: skip
        done = subprocess.run(command, env=os.environ | {"COURSE_ROOT": str(root)}, text=True,
                              stderr=subprocess.PIPE)  # fmt: skip
        text = warned.read_text(encoding="utf-8") if warned.is_file() else ""
        found = [line.removeprefix(f"{source}/") for line in text.splitlines() if line.strip()]
    if done.returncode:
        return [*found, f"Sphinx ended with {done.returncode}: {done.stderr.strip()}"]
    return found + faults(target)


def main() -> int:
    """Runs the command; returns its exit code."""
    parser = argparse.ArgumentParser("python -m docs.site.build", description=__doc__)
    parser.add_argument("target", nargs="?", type=Path, default=HERE.parents[1] / "site")
    target: Path = parser.parse_args().target.absolute()
    found = build(HERE.parents[1], target)
    print(*found, sep="\n", end="\n" if found else "")
    if target.is_dir():
        links = outside(target)
        (target / "outside.txt").write_text("".join(f"{link}\n" for link in links))
        pages = len(list(target.rglob("*.html")))
        print(f"{pages} pages in {target}, {len(found)} faults; begin with index.html")
        print(f"outside.txt there lists {len(links)} links to elsewhere, which nobody followed")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
