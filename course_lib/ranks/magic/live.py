"""Text that is shown while it grows, and stands as one output at the end."""

from __future__ import annotations

import os
from typing import Any

from IPython.display import display


class LiveText:
    """One output that can be replaced.

    With COURSE_LIVE=0 in the environment only the end is shown: a notebook that is run to be
    compared must give the same outputs however long it takes.
    """

    def __init__(self) -> None:
        self._handle: Any = None
        self._is_live = os.environ.get("COURSE_LIVE", "1") != "0"

    def update(self, text: str) -> None:
        """Shows the text so far."""
        if self._is_live and text:
            self._show(text)

    def finish(self, text: str) -> None:
        """Shows the final text; nothing at all if there never was any."""
        if text or self._handle is not None:
            self._show(text)

    def _show(self, text: str) -> None:
        data = {"text/plain": text}
        if self._handle is None:
            self._handle = display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)
