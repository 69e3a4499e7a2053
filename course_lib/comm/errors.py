"""How a call between ranks is refused: before anything is sent, in the form of `trace.Refusal`.

Notebook: all of them.
Costs nothing.
"""

from __future__ import annotations

from course_lib.trace import Refusal


class CommError(Refusal):
    """A communication call that cannot be carried out; `found` is a shape, a rank or a group."""
