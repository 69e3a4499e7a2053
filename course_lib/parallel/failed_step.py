"""After a step that failed: the ranks go on if all failed alike; else the one that failed says so.

Notebook: 02 Data parallel (what the wrappers refuse), 04 ZeRO (FSDPUnit).
Source: torch's DistributedDataParallel, whose next forward refuses after a backward that failed.
Costs nothing in steps that succeed; after one that failed, 8 bytes to every other rank.
The production version (torchelastic) ends all ranks when one fails, and starts them again.

A rank that failed cannot know whether the others did. If they did not, they wait for it in the
collectives of a step that it has given up, and the next one that it calls would be taken for one of
those: gradients of two batches would be added up, or gloo would end the process, since the sizes
differ. So it asks first, by messages that meet no other. What fails between a forward and
its backward, as in a loss, is not seen here.
"""

from __future__ import annotations

import torch

from course_lib.comm import CommError, Group, irecv, isend
from course_lib.trace.ledger import Counted

TAG = 1  # no message of an algorithm has it
PATIENCE = 2.5  # seconds that ranks which fail in one step may be apart


class Together:
    """Counts the collectives of a group from a moment at which all of its ranks were together.

    Args:
        group: the ranks; each makes this object when the others do.
    """

    def __init__(self, group: Group) -> None:
        self._group, self._before = group, _begun(group)

    def meet(self) -> None:
        """Returns once all ranks have called this, if they failed after the same collective.

        Raises:
            CommError: a rank does not come, so it has not failed; or it had begun others.
        """
        group = self._group
        said = torch.full((group.size,), _begun(group) - self._before, device=group.device)
        others = [index for index in range(group.size) if index != group.index]
        try:
            works = [isend(said[group.index : group.index + 1], i, group, tag=TAG) for i in others]
            works += [irecv(said[i : i + 1], i, group, tag=TAG) for i in others]
            for work in works:
                work.wait(PATIENCE)
        except RuntimeError as error:  # too late, or the connection is closed
            raise _over(group, "not on every other one") from error
        if len(set(said.tolist())) > 1:
            raise _over(group, f"after different numbers of collectives: {said.tolist()}")


def _begun(group: Group) -> int:
    return group.ledger.counts.get(Counted(group.ranks, "collective", -1), 0)


def _over(group: Group, how: str) -> CommError:
    return CommError(
        "the next step after one that failed",
        f"on rank {group.rank} it failed, and {how}, over {group}",
        "the ranks are in different steps: start them again, and make this wrapper again on each",
    )
