"""Packs a folder of text once, so that a training maps it: python -m course_lib.data.pack_folder.

Usage: python -m course_lib.data.pack_folder TEXTS PACKED, then --data PACKED.
"""

from __future__ import annotations

import sys
from pathlib import Path

from course_lib.data.own_text import text_documents
from course_lib.data.packed import write_packed
from course_lib.data.source import EVERYTHING
from course_lib.trace import Refusal


def main(words: list[str]) -> int:
    """Runs the command; returns its exit code."""
    if len(words) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        counts = write_packed(Path(words[1]), {**text_documents(Path(words[0]), EVERYTHING)})
    except (Refusal, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{words[1]}: {counts['train']} tokens to train on, {counts['validation']} to validate")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
