"""peer_checkpoint: each shard also in the memory of a rank on another node.

Notebook 17. `PeerCheckpoint(group, offset, shard)` keeps the shards of the newest saves. `offset`
says how far away a rank's partner is: member i's copy lies with member (i + offset) % N. `shard` is
a tensor of this rank's size and dtype; all ranks' are equal in these.

- `copy(step, shard)`, collective: this rank keeps its own shard and gets its neighbour's copy. Each
  rank sends its shard once. Training changes `shard` right afterwards.
- `seal(step)` is called when all ranks have returned from `copy`; it sends nothing. Only now is the
  save whole on this rank. A failure may come between, so that some ranks have sealed and others
  not, or in the middle of the next `copy`: until that is sealed, the last one must stay.
- `restore(shard, lost)`, collective: fills `shard` and returns the step of the newest save that all
  ranks which are not in `lost` have sealed. On lost ranks the object is new. Afterwards that save
  is whole on all ranks, so that the next node may go.
- There are two slots: no more than two own shards and two copies are kept.

Free to use: all of `course_lib.comm`. `exchange(give, to, take, source, group)` sends and receives
at once.
"""

from collections.abc import Collection

import torch

from course_lib.comm import Group, all_gather, exchange, recv, send


class PeerCheckpoint:
    """See above.

    Args:
        group: all ranks.
        offset: how far the partner is, 1 to N - 1.
        shard: of this rank's size, dtype and device.
    """

    def __init__(self, group: Group, offset: int, shard: torch.Tensor) -> None:
        # BEGIN SOLUTION: two slots
        self.group = group
        self.to = (group.index + offset) % group.size
        self.source = (group.index - offset) % group.size
        self.own = [torch.empty_like(shard) for _ in range(2)]
        self.kept = [torch.empty_like(shard) for _ in range(2)]
        self.steps = [-1, -1]  # -1: not whole
        # END SOLUTION

    def copy(self, step: int, shard: torch.Tensor) -> None:
        """Takes a save into the slot that is not the newest."""
        # BEGIN SOLUTION: copy
        self.slot = self.steps.index(min(self.steps))
        self.steps[self.slot] = -1
        self.own[self.slot].copy_(shard)
        exchange(self.own[self.slot], self.to, self.kept[self.slot], self.source, self.group)
        # END SOLUTION

    def seal(self, step: int) -> None:
        """That save is whole on all ranks."""
        # BEGIN SOLUTION: seal
        self.steps[self.slot] = step
        # END SOLUTION

    def restore(self, shard: torch.Tensor, lost: Collection[int]) -> int:
        """Goes back to the newest save that all who are left have sealed.

        Args:
            shard: is filled.
            lost: indices whose memory is gone; the same on all ranks.

        Returns:
            Its step.
        """
        # BEGIN SOLUTION: restore
        said = torch.empty(2 * self.group.size, dtype=torch.int64)
        all_gather(said, torch.tensor(self.steps), self.group)
        left = [set(both) for i, both in enumerate(said.view(-1, 2).tolist()) if i not in lost]
        step = max(set.intersection(*left))
        if self.group.index in lost:
            recv(shard, self.to, self.group)
        else:
            slot = self.steps.index(step)
            shard.copy_(self.own[slot])
            if self.source in lost:
                send(self.kept[slot], self.source, self.group)
            self.steps = [step if place == slot else -1 for place in range(2)]
        self.copy(step, shard)
        self.seal(step)
        return step
        # END SOLUTION
