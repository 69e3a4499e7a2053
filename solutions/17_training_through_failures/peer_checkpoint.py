"""peer_checkpoint: a copy of each shard in the memory of a rank on another node.

Notebook 17. `PeerCheckpoint(group, offset, shard)` keeps the shards of the newest saves. A rank's
partner keeps the copy of its shard: the partner of member i is member (i + offset) % N. `shard` is
a tensor with this rank's shape and dtype, which are the same on all ranks; its values are not
saved.

- `copy(step, shard)`, collective: this rank keeps a copy of its own shard and receives one of the
  rank whose partner it is. Each rank sends its shard once. Training changes `shard` right
  afterwards.
- `seal(step)` is called after all ranks have returned from `copy`, and sends nothing. Only now is
  the save complete on this rank. A failure may come when some ranks have sealed a save and others
  have not, or in the middle of the next `copy`. So the last sealed save must stay until the next
  one is sealed.
- `restore(shard, lost)`, collective: fills `shard` from the newest save that all ranks outside
  `lost` have sealed, and returns its step. On lost ranks the object is new. Afterwards this save is
  complete on all ranks again, so that the job survives the loss of another node.
- There are two slots: a rank keeps at most two shards of its own and two copies.

You may use all of `course_lib.comm`. `exchange(give, to, take, source, group)` sends and receives
at the same time.
"""

from collections.abc import Collection

import torch

from course_lib.comm import Group, all_gather, exchange, recv, send


class PeerCheckpoint:
    """Keeps two saves, as described above.

    Args:
        group: all ranks.
        offset: distance to the partner, 1 to N - 1.
        shard: a tensor with the shape, dtype and device of this rank's shard.
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
        """Writes a save to the slot that does not hold the newest one."""
        # BEGIN SOLUTION: copy
        self.slot = self.steps.index(min(self.steps))
        self.steps[self.slot] = -1
        self.own[self.slot].copy_(shard)
        exchange(self.own[self.slot], self.to, self.kept[self.slot], self.source, self.group)
        # END SOLUTION

    def seal(self, step: int) -> None:
        """Marks the save of the last `copy` as complete; all ranks have it."""
        # BEGIN SOLUTION: seal
        self.steps[self.slot] = step
        # END SOLUTION

    def restore(self, shard: torch.Tensor, lost: Collection[int]) -> int:
        """Goes back to the newest save that all surviving ranks have sealed.

        Args:
            shard: is filled in place.
            lost: indices of the members whose memory is lost; the same on all ranks.

        Returns:
            The step of that save.
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
