"""Wrong and right answers to `packed_loader`: see `course dev show packed_loader`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("loaded_state_not_told", ["with the state of one that was loaded"], '''
-        return {"document": self.document, "token": self.token}
+        return {"document": self.document, "token": self.token if self.open else 0}
'''),
    Wrong("asks_when_it_needs", ["the store is idle while the loader waits"], '''
-        while self.asked < len(self.documents) and len(self.coming) <= self.ahead:
+        while self.asked < len(self.documents) and not self.coming:
'''),
    Wrong("asks_for_all", ["long before they are needed"], '''
-        while self.asked < len(self.documents) and len(self.coming) <= self.ahead:
+        while self.asked < len(self.documents):
'''),
    Wrong("begins_anew", ["a loader that has ended gives a row"], '''
         if not self.coming:
+            self.load_state_dict({"document": 0, "token": 0})
             raise StopIteration
'''),
    Wrong("keeps_what_is_open", ["two rows of a used loader"], '''
-        self.open: deque[torch.Tensor] = deque()  # here and not used up, the first: `document`
+        self.open = getattr(self, "open", deque())
'''),
    Wrong("one_state_for_all", ["the rows after a stop"], '''
-        return {"document": self.document, "token": self.token}
+        vars(self).setdefault("state", {}).update(document=self.document, token=self.token)
+        return self.state
'''),
    Wrong("reads_everything_first", ["all rows are read before the first is given"], '''
-    while True:
+    rows = []
+    while True:
@@
-            return
-        yield row
+            break
+        rows.append(row)
+    yield from rows
'''),
    Wrong("boundary_is_a_target", ["a target like any other"], '''
-            stream[1:].masked_fill(first[1:], UNCOUNTED),
+            stream[1:],
'''),
    Wrong("ends_alone", ["finished without making that call"], '''
-        if row is None or not has:
+        if row is None:
             return
'''),
    Wrong("last_row_missing", ["one token more than a row is enough"], '''
-        while sum(map(len, self.open)) - self.token <= self.length:  # one more: the last target
+        while sum(map(len, self.open)) - self.token <= self.length + 1:
'''),
    Wrong("no_agreement", ["this rank goes on alone"], '''
-        row = next(loader, None)
-        has = torch.tensor([row is not None], dtype=torch.int64)
-        all_reduce(has, group, "min")
-        if row is None or not has:
-            return
-        yield row
+        yield from loader
+        return
'''),
    Wrong("rows_do_not_touch", ["each row takes T + 1 tokens away"], '''
-        self.token += self.length
+        self.token += self.length + 1
'''),
    Wrong("segments_go_on", ["has 1 there, and not 0"], '''
-            segments - segments[0],
+            segments,
'''),
    Wrong("state_counts_what_was_asked_for", ["only asked for"], '''
-        return {"document": self.document, "token": self.token}
+        return {"document": self.asked, "token": 0}
'''),
    Wrong("state_without_the_place", ["the state also needs the place"], '''
-        self.document, self.token = state["document"], state["token"]
+        self.document, self.token = state["document"], 0
'''),
    Wrong("waits_for_all_at_once", ["the number of documents waited for up to row 0"], '''
-        while sum(map(len, self.open)) - self.token <= self.length:  # one more: the last target
-            self.open.append(self.next_document())
+        while self.asked < len(self.documents) or self.coming:
+            self.open.append(self.next_document())
+        if sum(map(len, self.open)) - self.token <= self.length:
+            raise StopIteration
'''),
]

RIGHT = [
    Right("variant_a_one_list", "tokens of open documents in one Python list, with where each ends", '''
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch

from course_lib.comm import Group, all_reduce


class Row(NamedTuple):
    tokens: torch.Tensor
    targets: torch.Tensor
    segments: torch.Tensor


class PackedLoader:
    def __init__(
        self, store: Any, documents: Sequence[int], length: int, ahead: int, index: int, size: int
    ) -> None:
        self.store, self.length, self.ahead = store, length, ahead
        self.documents = documents[index::size]
        self.load_state_dict([0, 0])

    def __iter__(self) -> Iterator[Row]:
        return self

    def __next__(self) -> Row:
        while len(self.stream) < self.length + 1:
            while self.ask < len(self.documents) and self.ask <= self.got + self.ahead:
                self.handles.append(self.store.fetch(self.documents[self.ask]))
                self.ask += 1
            if not self.handles:
                raise StopIteration
            new = self.handles.popleft().wait().tolist()[self.skip:]
            start = [self.skip == 0] + [False] * (len(new) - 1)
            self.stream += list(zip(new, start, [self.got] * len(new),
                                    range(self.skip, self.skip + len(new))))
            self.got, self.skip = self.got + 1, 0
        row, self.stream = self.stream[: self.length + 1], self.stream[self.length :]
        tokens = torch.tensor([token for token, *_ in row])
        targets = torch.tensor([-100 if start else token for token, start, *_ in row[1:]])
        numbers, segment = [], 0
        for place, (_, start, *_) in enumerate(row[:-1]):
            segment += start and place > 0
            numbers.append(segment)
        self.place = list(self.stream[0][2:])
        return Row(tokens[:-1], targets, torch.tensor(numbers))

    def state_dict(self) -> Any:
        return self.place

    def load_state_dict(self, state: Any) -> None:
        self.place = list(state)
        self.got, self.skip = state
        self.ask, self.handles, self.stream = self.got, deque(), []


def together(loader: Iterator[Row], group: Group) -> Iterator[Row]:
    while True:
        row = next(loader, None)
        lacks = torch.tensor(float(row is None))
        all_reduce(lacks, group)
        if lacks > 0:
            return
        yield row
'''),
]
