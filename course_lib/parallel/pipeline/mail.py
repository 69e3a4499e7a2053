"""Messages between the stages of a pipeline: received in the order in which they are sent.

Notebook: 08 Pipeline parallel (gpipe_step, execute).
Paper: Narayanan et al., "Megatron-LM" (2021), section 2.2.
Costs: S bytes for each tensor of S bytes that crosses a border between two ranks.
The production version batches a send with a receive.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence

import torch

from course_lib.comm import Group, Work, irecv, isend
from course_lib.schedule import Action, Schedule

Tensors = list[torch.Tensor]


class Mail:
    """Messages between the stages, so that no order of actions can deadlock.

    Sends are started, and waited for only once it is known that they have arrived. Both ends know
    the schedule, so a rank expects the messages of another in the order in which it sends them,
    whatever is needed first here. One receive is posted ahead, so a message travels while the rank
    computes.

    Args:
        schedule: of all ranks.
        group: the ranks.
        expected: for each other rank, the actions whose results it sends here, in its order.
        blank: empty tensors for an action's results, one for each message.
    """

    def __init__(
        self,
        schedule: Schedule,
        group: Group,
        expected: Mapping[int, Sequence[Action]],
        blank: Callable[[Action], Tensors],
    ) -> None:
        self.schedule, self.group, self.blank = schedule, group, blank
        self.home = schedule.placement
        self._expected = {peer: deque(actions) for peer, actions in expected.items()}
        self._coming: dict[Action, list[tuple[torch.Tensor, Work]]] = {}
        self._here: dict[Action, Tensors] = {}
        self._going: dict[int, list[tuple[int, Work]]] = {peer: [] for peer in expected}
        for peer in self._expected:
            self._post(peer)

    def take(self, action: Action | None) -> Tensors | None:
        """The result of another stage's action, once it is here; None for None."""
        if action is None:
            return None
        peer = self.home[action.stage]
        if peer == self.group.index:
            return self._here.pop(action)
        while action not in self._coming:
            self._post(peer)
        if all(self.home[a.stage] != peer or a == action for a in self._coming):
            self._post(peer)
        coming = self._coming.pop(action)
        for _, work in coming:
            work.wait()
        self._release(peer, self.schedule.place[action])
        return [buffer for buffer, _ in coming]

    def give(self, action: Action, results: Tensors) -> None:
        """Sends results to the stage that needs it, if one does."""
        user = self.schedule.used_by.get(action)
        if user is None:
            return
        peer = self.home[user.stage]
        if peer == self.group.index:
            self._here[action] = results
            return
        for result in results:
            work = isend(result, peer, self.group, chunk=action.micro)
            self._going[peer].append((self.schedule.place[user], work))

    def finish(self) -> None:
        """Waits until everything sent has left."""
        for peer, line in enumerate(self.schedule.actions):
            if peer in self._going:
                self._release(peer, len(line))

    def _release(self, peer: int, place: int) -> None:
        """Forgets messages that a rank has used, now that it is at `place` of its list."""
        for needed, work in self._going[peer]:
            if needed < place:
                work.wait()
        self._going[peer] = [(n, work) for n, work in self._going[peer] if n >= place]

    def _post(self, peer: int) -> None:
        """Starts to receive a rank's next results, if there are any."""
        if self._expected[peer]:
            action = self._expected[peer].popleft()
            self._coming[action] = [
                (buffer, irecv(buffer, peer, self.group, chunk=action.micro))
                for buffer in self.blank(action)
            ]
