"""`python -m course_lib.site [DIR]`: builds the site, and fails if a link leads nowhere."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from course_lib.site.build import build
from course_lib.site.check import broken_links

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    """Runs the command; returns its exit code."""
    parser = argparse.ArgumentParser("python -m course_lib.site", description=__doc__)
    parser.add_argument("target", nargs="?", type=Path, default=ROOT / "site")
    target: Path = parser.parse_args().target
    pages = build(ROOT, target)
    faults = broken_links(pages)
    print(*faults, sep="\n", end="\n" if faults else "")
    print(f"{len(pages)} files in {target}, {len(faults)} faults; begin with index.html")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
