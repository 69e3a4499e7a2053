"""packed_loader: rows of tokens from documents that arrive late, and a state that loses nothing.

Notebook 14. Each rank has its own documents: every `size`-th of a list that all ranks have. They
come from a slow store, so the loader asks for some documents before it needs them. It writes them
one after another into a stream of tokens and cuts the stream into rows. A run may be stopped after
any row, and continues with a new loader from the saved state.

Rules
- The stream of a rank is its documents, whole and in order. Row k has the tokens kT to kT + T - 1
  of the stream, and its targets are the tokens one position later. A row exists if its last target
  does; the rest at the end is dropped. A document may be longer than a row, or empty.
- A target that is the first token of a document is -100 instead: nothing before it could predict
  it. `segments` counts the documents of a row from 0. A document that began in an earlier row and
  continues in this one has number 0.
- `store.fetch(number)` asks for a document and returns at once; `.wait()` of what it returned gives
  the tokens. Wait for a document when a row needs it, and not before. At each wait, you have asked
  for this document and the `ahead` documents after it (or fewer, if there are no more), and for
  none after those. Each is asked for once, in order.
- `state_dict()` can be turned into JSON, is small, and says where the next row begins. A loader
  that has loaded it returns the rows that this one would have returned. It does not ask for
  documents that are used up, and asks again for those that were asked for but not used up.
- `together` ends on all ranks after the same number of rows, as soon as one rank has no more. It
  makes one all-reduce of one number before each row and one at the end, and sends nothing else.

Your answer may use `comm` of `course_lib`.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch

from course_lib.comm import Group, all_reduce

UNCOUNTED = -100


class Row(NamedTuple):
    """One row of a batch; T tokens.

    Attributes:
        tokens: int64 [T].
        targets: int64 [T], the next tokens; -100 where another document begins.
        segments: int64 [T], the number of the document in this row, from 0.
    """

    tokens: torch.Tensor
    targets: torch.Tensor
    segments: torch.Tensor


class PackedLoader:
    """The rows of one rank.

    Args:
        store: has `fetch(number)`; what that returns has `wait()`, which gives int64 [tokens].
        documents: the numbers of all documents, in the order in which they are read; on all ranks.
        length: T, tokens of a row.
        ahead: how many documents are asked for before they are needed.
        index: this rank's, of `size`; it has documents[index], documents[index + size], ...
        size: how many ranks there are.
    """

    def __init__(
        self, store: Any, documents: Sequence[int], length: int, ahead: int, index: int, size: int
    ) -> None:
        self.store, self.length, self.ahead = store, length, ahead
        self.documents = documents[index::size]
        raise NotImplementedError("packed_loader: __init__")

    def __iter__(self) -> Iterator[Row]:
        return self

    def __next__(self) -> Row:
        """The next row.

        Raises:
            StopIteration: too few tokens are left.
        """
        raise NotImplementedError("packed_loader: __next__")

    raise NotImplementedError("packed_loader: what else the loader needs")

    def state_dict(self) -> dict[str, Any]:
        """Where the next row begins."""
        raise NotImplementedError("packed_loader: state_dict")

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on where `state` was taken; of a loader with the same arguments."""
        raise NotImplementedError("packed_loader: load_state_dict")


def together(loader: Iterator[Row], group: Group) -> Iterator[Row]:
    """The rows of this rank, as long as every rank of the group has one."""
    raise NotImplementedError("packed_loader: together")
