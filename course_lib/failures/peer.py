"""Checkpoints in the memory of another node: each shard lies on two, and any one node may go.

Notebook: 17 Training through failures (peer_checkpoint).
Source: Gemini (Wang et al., 2023).
Costs S bytes sent and received a rank, and 4·S of host memory: two slots for its own shard and two
for its neighbour's.
The production version sends in the gaps between the collectives of training.

A rank may die in the middle of a save. So there are two slots, and a save writes into the one that
is not the newest whole one; it counts once all ranks have said that they have it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import torch

from course_lib.comm import Group, all_gather, barrier, exchange, recv, send
from course_lib.trace import Refusal

NEVER = -1


class Slot(NamedTuple):
    """One save, as one rank holds it.

    Attributes:
        step: after which step it was made; NEVER if it is not whole.
        own: this rank's shard.
        kept: the shard of the rank whose partner this one is.
    """

    step: int
    own: torch.Tensor
    kept: torch.Tensor


class PeerCheckpoint:
    """Each rank's shard in its own memory, and in that of the rank `offset` places further.

    Args:
        group: all ranks.
        offset: how far the partner is: at least the ranks of a node, so that it is on another.
        shard: one of this rank's size, dtype and device, equal on all ranks.

    Raises:
        Refusal: the partner would be the rank itself.
    """

    def __init__(self, group: Group, offset: int, shard: torch.Tensor) -> None:
        if offset % group.size == 0:
            raise Refusal(
                f"a copy {offset} ranks further in {group}",
                "that is the rank itself",
                "a copy in the same memory is lost with it; take the number of ranks of a node",
            )
        self.group = group
        self.to, self.source = ((group.index + by) % group.size for by in (offset, -offset))
        self.slots = [Slot(NEVER, *(torch.empty_like(shard) for _ in range(2))) for _ in range(2)]

    def save(self, step: int, shard: torch.Tensor) -> None:
        """Keeps a shard here and with the partner; collective. S bytes a rank, and a barrier.

        Args:
            step: how many steps were made; higher than at the last save.
            shard: is copied, so training may change it afterwards.

        Raises:
            Refusal: the step is lower than at the last save, or the shard is not like the first.
        """
        like, last = self.slots[0].own, max(slot.step for slot in self.slots)
        if step < max(0, last) or (shard.shape, shard.dtype) != (like.shape, like.dtype):
            raise Refusal(
                f"keep step {step}, a shard of {shard.dtype}, shape {tuple(shard.shape)}",
                f"step {last} saved, room for {like.dtype}, shape {tuple(like.shape)}",
                "the newest save is the one that is gone back to, and a copy is as exact",
            )
        place = min((0, 1), key=lambda i: self.slots[i].step)  # never the newest whole one
        _, own, kept = self.slots[place]
        self.slots[place] = Slot(NEVER, own, kept)  # from here on it is torn
        own.copy_(shard)
        exchange(own, self.to, kept, self.source, self.group)
        barrier(self.group)  # all have theirs
        self.slots[place] = Slot(step, own, kept)

    def restore(self, shard: torch.Tensor, lost: Collection[int] = ()) -> int:
        """Goes back to the newest save that is whole everywhere; collective.

        Args:
            shard: is filled.
            lost: indices whose memory is gone; on these this object is new. The same on all.

        Returns:
            The step of that save.

        Raises:
            Refusal: a rank and its partner are both lost, or no save is whole. On every rank.
        """
        own_steps = torch.tensor(sorted(slot.step for slot in self.slots))
        said = torch.empty(2 * self.group.size, dtype=torch.int64)
        all_gather(said, own_steps, self.group)
        offset = (self.to - self.group.index) % self.group.size
        left = [i for i in range(self.group.size) if i not in lost]
        saves = [set(said.view(-1, 2)[i].tolist()) for i in left] or [{NEVER}]
        whole = set.intersection(*saves) - {NEVER}
        alone = [i for i in lost if (i + offset) % self.group.size in lost]
        if not whole or alone:
            raise Refusal(
                "go back to a checkpoint in memory",
                f"ranks {sorted(lost)} are lost, whole saves: {sorted(whole) or 'none'}",
                "a shard and its copy are gone: only a checkpoint on a disk helps",
            )
        step = max(whole)
        # A newer save that is whole here alone is torn: the next must not be written over this one.
        self.slots = [s if s.step == step else s._replace(step=NEVER) for s in self.slots]
        if self.group.index not in lost:
            slot = next(slot for slot in self.slots if slot.step == step)
            shard.copy_(slot.own)
            if self.source in lost:
                send(slot.kept, self.source, self.group)
        else:
            recv(shard, self.to, self.group)
        if lost:
            self.save(step, shard)  # each shard is on two nodes again
        return step
