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

Your answer may use `comm` of `course_lib`.
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
        raise NotImplementedError("peer_checkpoint: two slots")

    def copy(self, step: int, shard: torch.Tensor) -> None:
        """Takes a save into the slot that is not the newest."""
        raise NotImplementedError("peer_checkpoint: copy")

    def seal(self, step: int) -> None:
        """That save is whole on all ranks."""
        raise NotImplementedError("peer_checkpoint: seal")

    def restore(self, shard: torch.Tensor, lost: Collection[int]) -> int:
        """Goes back to the newest save that all who are left have sealed.

        Args:
            shard: is filled.
            lost: indices whose memory is gone; the same on all ranks.

        Returns:
            Its step.
        """
        raise NotImplementedError("peer_checkpoint: restore")
