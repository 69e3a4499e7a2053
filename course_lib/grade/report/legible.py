"""What an answer has put into words, such that a terminal, a page and an XML file show it.

A message, a type's name, a line of source or of output may hold anything: letters that move a
terminal's cursor or turn the line round, halves of letters that no file can hold. Each of them is
shown by its number instead, so that a card says what the grader has said and nothing else.
"""

from __future__ import annotations

import unicodedata
from typing import Any

# Control, format (as those that change the direction), half a letter, none; ends of lines.
UNSEEN = ("Cc", "Cf", "Cs", "Cn", "Zl", "Zp")
LONGEST = 4000  # letters; of a longer text, nobody reads the rest


def legible(data: Any) -> Any:
    """JSON-ready data with all its texts legible.

    Args:
        data: a text, or lists and dicts of texts, numbers and None.
    """
    if isinstance(data, str):
        data = data if len(data) <= LONGEST else f"{data[:LONGEST]}..."
        return data if data.isascii() and data.isprintable() else "".join(map(_seen, data))
    if isinstance(data, dict):
        return {legible(name): legible(each) for name, each in data.items()}
    if isinstance(data, (list, tuple)):
        return type(data)(legible(each) for each in data)
    return data


def _seen(letter: str) -> str:
    if letter in "\n\t" or unicodedata.category(letter) not in UNSEEN:
        return letter
    return letter.encode("unicode_escape").decode()
