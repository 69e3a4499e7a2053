"""A pipeline schedule is data: one list of actions for each rank, in the order it runs them.

Notebook: 08 Pipeline parallel (all exercises).
Paper: Huang et al., "GPipe" (2019); Narayanan et al., "Megatron-LM" (2021), section 2.2.
Costs nothing by itself: the same object is drawn, checked, simulated and executed.
The production version (torch.distributed.pipelining) reads and writes such lists as CSV.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from course_lib.schedule.action import KINDS, Action, ScheduleError


@dataclass(frozen=True)
class Schedule:
    """What every rank of a pipeline does, in order.

    Attributes:
        name: `GPipe`, `1F1B`, ...
        actions: for each rank its actions.
        micro_batches: m, how many there are.

    Raises:
        ScheduleError: a rank without an action, a forward without its backward, an action twice,
            a stage on two ranks, a stage or micro-batch left out, or a backward before its
            forward. `simulate` shows whether ranks wait for each other in a cycle.
    """

    name: str
    actions: tuple[tuple[Action, ...], ...]
    micro_batches: int

    def __post_init__(self) -> None:
        self._check_entries()
        self._check_homes()
        self._check_complete()
        for rank in range(self.ranks):
            self._check_order(rank)

    @classmethod
    def parse(cls, text: str, name: str = "from text") -> Schedule:
        """The schedule that `str` wrote: a line a rank, actions with spaces between them.

        Raises:
            ScheduleError: as for the class, or a word that is not an action.
        """
        lines = [line.split() for line in text.strip().splitlines()]
        return cls.of(name, [[Action.parse(word) for word in line] for line in lines])

    @classmethod
    def of(cls, name: str, actions: Sequence[Sequence[Action]]) -> Schedule:
        """A schedule of these lists; the number of micro-batches is read off them.

        Raises:
            ScheduleError: as for the class.
        """
        micros = 1 + max((a.micro for line in actions for a in line), default=-1)
        return cls(name, tuple(tuple(line) for line in actions), micros)

    def __str__(self) -> str:
        return "\n".join(" ".join(map(str, line)) for line in self.actions)

    @property
    def ranks(self) -> int:
        """p, the size of the pipeline."""
        return len(self.actions)

    @cached_property
    def stages(self) -> int:
        """Parts of the model: p times the chunks of a rank."""
        return 1 + max((a.stage for line in self.actions for a in line), default=-1)

    @cached_property
    def placement(self) -> tuple[int, ...]:
        """The rank of each stage."""
        home = {a.stage: rank for rank, line in enumerate(self.actions) for a in line}
        return tuple(home[stage] for stage in range(self.stages))

    def stages_of(self, rank: int) -> list[int]:
        """The stages that a rank holds, first to last."""
        return sorted({action.stage for action in self.actions[rank]})

    def sends(self, sender: int, receiver: int) -> list[Action]:
        """The actions of `sender` whose result goes to `receiver`, in the order it is sent.

        A forward's result goes to the next stage, a backward's (`B` or `I`) to the one before.
        """
        users = self.used_by
        return [
            action
            for action in self.actions[sender]
            if action in users and self.placement[users[action].stage] == receiver
        ]

    def comes_from(self, action: Action) -> Action | None:
        """The action of another stage whose result an action needs; None if there is none."""
        for group in action.needs(self.stages):
            for source in group:
                if source.stage != action.stage and source in self.place:
                    return source
        return None

    @cached_property
    def place(self) -> dict[Action, int]:
        """Where each action stands in its rank's list."""
        return {action: i for line in self.actions for i, action in enumerate(line)}

    @cached_property
    def used_by(self) -> dict[Action, Action]:
        """For each action whose result another stage needs, the action that needs it."""
        pairs = ((self.comes_from(user), user) for line in self.actions for user in line)
        return {source: user for source, user in pairs if source is not None}

    def _check_entries(self) -> None:
        """Refuses what is no valid entry, so that the other checks can rely on it."""
        asked = f"the schedule {self.name} of {self.micro_batches} micro-batches"
        idle = [rank for rank, line in enumerate(self.actions) if not line]
        if idle or not self.actions:
            where = f"rank {idle[0]}" if idle else "any rank"
            raise ScheduleError(asked, f"no action of {where}", "a rank of a pipeline has a stage")
        for action in (action for line in self.actions for action in line):
            numbers = type(action.stage) is int and type(action.micro) is int
            if not numbers or action.stage < 0 or action.kind not in tuple(KINDS):
                why = "stages and micro-batches count from 0, the letter is F, B, I or W"
                raise ScheduleError(asked, f"{action!r}", why)
            if not 0 <= action.micro < self.micro_batches:
                raise ScheduleError(asked, f"{action}", "there is no micro-batch of that number")

    def _check_homes(self) -> None:
        home: dict[int, int] = {}
        for rank, line in enumerate(self.actions):
            for action in line:
                if home.setdefault(action.stage, rank) != rank:
                    raise ScheduleError(
                        f"the schedule {self.name}",
                        f"{action} on rank {rank}, and stage {action.stage} on rank "
                        f"{home[action.stage]} too",
                        "a stage's weights are on one rank, which runs all of its actions",
                    )
        if len(home) < self.stages:
            missing = next(stage for stage in range(self.stages) if stage not in home)
            raise ScheduleError(
                f"the schedule {self.name} of {self.stages} stages",
                f"no action of stage {missing}",
                "every micro-batch goes through every stage",
            )

    def _check_complete(self) -> None:
        counts = Counter(action for line in self.actions for action in line)
        for stage in range(self.stages):
            for micro in range(self.micro_batches):
                letters = "".join(k * counts[Action(stage, k, micro)] for k in "FBIW")
                if letters not in ("FB", "FIW"):
                    raise ScheduleError(
                        f"the schedule {self.name} of {self.micro_batches} micro-batches",
                        f"stage {stage} runs {_only(letters)} for micro-batch {micro}",
                        "each micro-batch passes each stage with one F, and one B or one I and W",
                    )

    def _check_order(self, rank: int) -> None:
        done: set[Action] = set()
        for action in self.actions[rank]:
            mine = [
                a for group in action.needs(self.stages) for a in group if a.stage == action.stage
            ]
            if late := [a for a in mine if a not in done]:
                raise ScheduleError(
                    f"the schedule {self.name}",
                    f"{action} before {late[0]} on rank {rank}",
                    "a backward needs what its forward has kept, and a W what its I has",
                )
            done.add(action)


def _only(letters: str) -> str:
    """What a stage runs for a micro-batch, in words."""
    return "nothing" if not letters else f"only {letters}" if len(letters) == 1 else letters
