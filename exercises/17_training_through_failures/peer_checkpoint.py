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

Your answer may use `comm` of `course_lib`.
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
        raise NotImplementedError("peer_checkpoint: two slots")

    def copy(self, step: int, shard: torch.Tensor) -> None:
        """Writes a save to the slot that does not hold the newest one."""
        raise NotImplementedError("peer_checkpoint: copy")

    def seal(self, step: int) -> None:
        """Marks the save of the last `copy` as complete; all ranks have it."""
        raise NotImplementedError("peer_checkpoint: seal")

    def restore(self, shard: torch.Tensor, lost: Collection[int]) -> int:
        """Goes back to the newest save that all surviving ranks have sealed.

        Args:
            shard: is filled in place.
            lost: indices of the members whose memory is lost; the same on all ranks.

        Returns:
            The step of that save.
        """
        raise NotImplementedError("peer_checkpoint: restore")
