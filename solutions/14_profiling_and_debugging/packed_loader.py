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
        self.store, self.length, self.ahead = store, length, ahead  # mutate: same
        self.documents = documents[index::size]  # mutate: same
        # BEGIN SOLUTION: __init__
        self.load_state_dict({"document": 0, "token": 0})
        # END SOLUTION

    def __iter__(self) -> Iterator[Row]:
        return self

    def __next__(self) -> Row:
        """The next row.

        Raises:
            StopIteration: too few tokens are left.
        """
        # BEGIN SOLUTION: __next__
        while sum(map(len, self.open)) - self.token <= self.length:  # one more: the last target
            self.open.append(self.next_document())
        here = slice(self.token, self.token + self.length + 1)
        stream = torch.cat([*self.open])[here]  # mutate: same
        first = torch.cat([torch.arange(len(tokens)) == 0 for tokens in self.open])[here]
        segments = first[:-1].cumsum(0)  # mutate: same
        self.token += self.length
        while self.open and self.token >= len(self.open[0]):
            self.token -= len(self.open.popleft())  # mutate: same
            self.document += 1
        return Row(
            stream[:-1],
            stream[1:].masked_fill(first[1:], UNCOUNTED),
            segments - segments[0],
        )
        # END SOLUTION

    # BEGIN SOLUTION: what else the loader needs
    def next_document(self) -> torch.Tensor:
        """Waits for the next document, after those behind it have been asked for."""
        while self.asked < len(self.documents) and len(self.coming) <= self.ahead:
            self.coming.append(self.store.fetch(self.documents[self.asked]))
            self.asked += 1
        if not self.coming:
            raise StopIteration
        tokens: torch.Tensor = self.coming.popleft().wait()
        return tokens

    # END SOLUTION

    def state_dict(self) -> dict[str, Any]:
        """Where the next row begins."""
        # BEGIN SOLUTION: state_dict
        return {"document": self.document, "token": self.token}
        # END SOLUTION

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on where `state` was taken; of a loader with the same arguments."""
        # BEGIN SOLUTION: load_state_dict
        self.document, self.token = state["document"], state["token"]
        # What was asked for and not used is asked for again.
        self.asked = self.document  # mutate: same
        self.coming: deque[Any] = deque()  # asked for  # mutate: same
        self.open: deque[torch.Tensor] = deque()  # here and not used up, the first: `document`
        # END SOLUTION


def together(loader: Iterator[Row], group: Group) -> Iterator[Row]:
    """The rows of this rank, as long as every rank of the group has one."""
    # BEGIN SOLUTION: together
    while True:
        row = next(loader, None)
        has = torch.tensor([row is not None], dtype=torch.int64)
        all_reduce(has, group, "min")
        if row is None or not has:
            return
        yield row
    # END SOLUTION
