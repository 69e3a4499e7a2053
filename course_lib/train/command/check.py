"""Says before any process starts whether a run can work, why not, and the nearest that can.

Notebook: 13 3D parallelism.
Source: each rule is that of the part of the course that would refuse later, on every rank at once.
Costs milliseconds, and no process.
The production version (Megatron-LM) asserts such rules one after the other: it names the first.
"""

from __future__ import annotations

import psutil

from course_lib.model import parameter_count
from course_lib.trace import Refusal
from course_lib.train.command.config import RunConfig
from course_lib.train.command.nearest import nearest
from course_lib.train.command.problems import find_problems

BYTES = {"fp32": 4, "fp64": 8}  # of a weight
SHOWN = 3  # problems that are written out: the simplest come first


class ConfigError(Refusal):
    """A run that cannot work. Its fields are those of the first problem, its text has several.

    Attributes:
        problems: all reasons why it cannot, the simplest first.
        nearest: a run that can, with as few changes as possible; None if none was found.
    """

    def __init__(self, problems: list[Refusal], nearest: RunConfig | None) -> None:
        super().__init__(problems[0].asked, problems[0].found, problems[0].why)
        self.args = (problems, nearest)  # from which pickle makes it again
        self.problems, self.nearest = problems, nearest

    def __str__(self) -> str:
        lines = [str(problem) for problem in self.problems[:SHOWN]]
        if len(self.problems) > SHOWN:
            lines.append(f"and {len(self.problems) - SHOWN} more of this kind")
        if self.nearest is not None:
            lines.append(f"the nearest run that works:\n{self.nearest.command()}")
        return "\n".join(lines)


def check(config: RunConfig, world: int | None = None) -> None:
    """Refuses a run that cannot work; starts nothing.

    Args:
        config: the run.
        world: how many ranks there are; None for as many as it needs.

    Raises:
        ConfigError: it cannot.
    """
    problems = list(find_problems(config, world))
    if problems:
        raise ConfigError(problems, nearest(config, world))


def refuse_without_room(config: RunConfig, ranks: int) -> None:
    """Refuses a model that this machine cannot hold: each rank builds the whole before it is cut.

    Args:
        config: of a run that can work.
        ranks: on this machine.

    Raises:
        Refusal: the weights alone are more than the machine's memory.
    """
    each = parameter_count(config.model) * BYTES[config.weights]
    room = psutil.virtual_memory().total
    if ranks * each > room:
        raise Refusal(
            f"{ranks} ranks that each build a model of {each / 1e9:,.1f} GB",
            f"a machine with {room / 1e9:,.1f} GB of memory",
            "a rank builds the whole model before it is cut; `course plan` says what it would take",
        )
