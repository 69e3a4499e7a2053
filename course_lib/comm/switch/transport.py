"""A group's calls over the switch: the same words as torch's, and no process group below them.

Notebook: none of its own; every exercise is graded on it.
Source: `comm.transport`, whose words these are.
Costs: see `switch`. Cutting a group is one call of all ranks.
The production version of a group is a communicator, with buffers of its own.

What is given is copied when the call begins, and the result when it is waited for. So a send waits
for its receive however small it is, a tensor that is read before `wait` has its old values, and
`wait` sees whether what was given has been changed meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from course_lib.comm.matching import Post
from course_lib.comm.switch.link import Call, Link
from course_lib.comm.transport import Handle
from course_lib.trace import Event, Ledger

IN_PLACE = ("all_reduce", "reduce", "broadcast")
NOTHING = torch.empty(0, dtype=torch.uint8)


class SwitchTransport:
    """A group of the switch's, as one of its members uses it.

    Args:
        link: the rank's connection.
        rank: its global rank.
        ranks: global ranks of the group, in the order of their index.
        group: the group's number at the switch; 0 is the world.
    """

    gpu_to_gpu = False

    def __init__(self, link: Link, rank: int, ranks: Sequence[int], group: int = 0) -> None:
        self.link, self.rank, self.ranks, self.group = link, rank, tuple(ranks), group
        self.name = f"switch {group}"

    def collective(
        self,
        op: str,
        output: torch.Tensor,
        input: torch.Tensor,
        *,
        reduction: str = "sum",
        root: int = 0,
        sizes: tuple[Sequence[int], Sequence[int]] = ((), ()),
        event: Event | None = None,
    ) -> Handle:
        """See `Transport.collective`."""
        if op == "barrier":
            return self._post(op, NOTHING, None, event)
        fields: dict[str, Any] = {}
        if op in ("all_reduce", "reduce", "reduce_scatter"):
            fields["reduction"] = reduction
        if op in ("broadcast", "reduce"):
            fields["root"] = root
        if op == "all_to_all":
            taken, given = sizes
            fields["taken"] = _elements(output, taken, len(self.ranks))
            fields["given"] = _elements(input, given, len(self.ranks))
        return self._post(op, input, input if op in IN_PLACE else output, event, **fields)

    def send(self, data: torch.Tensor, to: int, event: Event | None = None, tag: int = 0) -> Handle:
        """See `Transport.send`."""
        return self._post("send", data, None, event, peer=self.ranks[to], tag=tag)

    def recv(
        self, data: torch.Tensor, source: int, event: Event | None = None, tag: int = 0
    ) -> Handle:
        """See `Transport.recv`."""
        nothing = data.new_empty(0)
        return self._post("recv", nothing, data, event, peer=self.ranks[source], tag=tag)

    def _post(
        self,
        op: str,
        given: torch.Tensor,
        result: torch.Tensor | None,
        event: Event | None,
        /,
        **fields: Any,
    ) -> Call:
        tensor = result if op == "recv" and result is not None else given
        name = str(tensor.dtype).removeprefix("torch.") if tensor is not NOTHING else ""
        post = Post(
            self.rank, op, self.group, name, tensor.numel(), tensor.element_size(),
            axis=event.axis if event else "", **fields,
        )  # fmt: skip
        return self.link.post(post, given, result, event)

    def when_done(self, handle: Handle, then: Callable[[float], None]) -> None:
        """See `Transport.when_done`."""
        assert isinstance(handle, Call)
        handle.when_done(then)

    def split(self, parts: Sequence[Sequence[int]], ledger: Ledger) -> SwitchTransport:
        """See `Transport.split`: one call of the world, in which each rank names its own part."""
        [mine] = [tuple(part) for part in parts if self.rank in part]
        post = Post(self.rank, "split", part=mine)
        made = self.link.post(post, NOTHING, None, None).wait()
        return SwitchTransport(self.link, self.rank, mine, made)


def _elements(tensor: torch.Tensor, rows: Sequence[int], members: int) -> tuple[int, ...]:
    """Elements of each member's rows; equal parts if none are said."""
    if not rows:
        return (tensor.numel() // members,) * members
    row = tensor.numel() // tensor.shape[0] if tensor.dim() and tensor.shape[0] else 0
    return tuple(count * row for count in rows)
