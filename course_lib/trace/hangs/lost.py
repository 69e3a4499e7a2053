"""How an error reads of a rank whose peer has ended: gloo's words, and the system's."""

from __future__ import annotations

import re

LOST = re.compile("Connection (closed|reset|refused)|Broken pipe|Connect timeout")


def lost_peer(text: str) -> bool:
    """Whether an error says that another rank has ended: the reason is there, and not here."""
    return bool(LOST.search(text))
