"""Judges a layout that somebody has in mind: can it be, what it costs, what is near and better.

Notebook: 15 Choosing a strategy; `course plan --layout tp8 pp4 dp16 zero1 ...`.
Source: the rules and predictions of the planner beside it.
Costs one simulation more than the search.
The production version reads the launch script.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from course_lib.layout import RECOMPUTE, Layout
from course_lib.plan.memory.memory import Memory
from course_lib.plan.search.planner import (
    Choice,
    Plan,
    Problem,
    best_of,
    breaks_a_rule,
    ways_of,
)
from course_lib.schedule import KINDS
from course_lib.trace import Refusal

AXES = ("pp", "dp", "ep", "cp", "tp")
NUMBERS = (*AXES, "zero", "chunks", "mbs")
WRAPPERS = {"ddp": 0, "fsdp": 3}  # words that say ZeRO's stage, perhaps with the replicas
SAME = {"vpp": "chunks", "vp": "chunks"}
SCHEDULES = {kind.word: name for name, kind in KINDS.items() if kind.word}


@dataclass(frozen=True)
class Verdict:
    """What is said of a layout.

    Attributes:
        layout: as asked, with its part of the batch.
        why_not: the first reason against it; empty if it can be used.
        memory: of the fullest rank; None if it cannot be cut so.
        seconds: of a step; None if it cannot be used.
        nearest: the layout of the plan that is most like it, faster or at least possible; None if
            nothing is.
    """

    layout: Layout
    why_not: str
    memory: Memory | None
    seconds: float | None
    nearest: Choice | None

    def text(self) -> str:
        """Two lines."""
        said = f"Your layout, {words_of(self.layout)}: "
        if self.why_not:
            said += f"not possible: {self.why_not}"
        elif self.memory:
            said += f"{self.seconds:.3g} s per step, {self.memory.total / 1e9:.1f} GB"
        if self.nearest is None:
            better = "nothing else is better" if not self.why_not else "no layout fits"
            return f"{said}\nNear it, {better}."
        other = self.nearest
        gain = f", {self.seconds / other.seconds:.2f} times as fast" if self.seconds else ""
        took = f"{other.seconds:.3g} s, {other.memory.total / 1e9:.1f} GB{gain}"
        kind = "faster" if self.seconds else "possible"
        return f"{said}\nThe nearest {kind} one, {words_of(other.layout)}: {took}"


def words_of(layout: Layout) -> str:
    """The layout as it is written for `parse_layout`."""
    said = [f"{axis}{getattr(layout, axis)}" for axis in AXES if getattr(layout, axis) > 1]
    said += [f"zero{layout.zero}"] if layout.zero else []
    said += [f"mbs{layout.micro_batch_size}"] if layout.micro_batch_size > 1 else []
    if layout.pp > 1:
        said.append(KINDS[layout.schedule].word or layout.schedule)
        said += [f"chunks{layout.chunks}"] if layout.chunks > 1 else []
    return " ".join([*said, layout.recompute] if layout.recompute != "none" else said) or "one GPU"


def strategy_of(layout: Layout) -> str:
    """A layout in the words of `decision`."""
    words = ["TP"] if layout.tp > 1 else []
    words += ["PP"] if layout.pp > 1 else []
    words += ["CP"] if layout.cp > 1 else []
    words += ["EP"] if layout.ep > 1 else []
    if layout.replicas > 1:
        words.append({0: "DDP", 3: "FSDP"}.get(layout.zero, f"ZeRO-{layout.zero}"))
    words += ["recomputation"] if layout.recompute == "full" else []
    words += ["accumulation"] if layout.pp == 1 and layout.micro_batches > 1 else []
    return " + ".join(words) or "one GPU"


def parse_layout(words: Sequence[str], problem: Problem) -> Layout:
    """A layout from words as `tp8 pp4 dp16 zero1 mbs2 interleaved chunks4 full`.

    Replicas that are not said are what is left of the GPUs. Micro-batches come from the batch.
    Large letters, commas, `=` and other programs' words (`fsdp`, `ddp`, `vpp4`) are understood.

    Args:
        words: degrees with their axis, a schedule, and what is computed again.
        problem: the cluster and the batch.

    Raises:
        Refusal: an unknown word, a field that is said twice, or chunks that a schedule has not.
    """
    said: dict[str, Any] = {}
    for word in re.split(r"[\s,]+", " ".join(words).strip()):
        for name, value in _meant(word).items():
            if name in said:
                raise Refusal(
                    f"the word {word!r} in a layout",
                    f"{name} {said[name]} was said before",
                    "each is said once",
                )
            said[name] = value
    size = said.pop("mbs", 1)
    others = math.prod(said.get(axis, 1) for axis in AXES if axis != "dp")
    said.setdefault("dp", max(1, problem.cluster.count // others))
    layout = Layout(**_with_chunks(said), micro_batch_size=size)
    even = problem.config.moe is None and problem.config.sequence % (2 * layout.cp * layout.tp) == 0
    return replace(
        layout,
        micro_batches=max(1, problem.batch // (layout.dp * layout.ep * size)),
        sequence=layout.tp > 1 and even,
        precision=problem.precision,
    )


def _meant(word: str) -> dict[str, Any]:
    """Fields of a layout, and `mbs`, that one word sets."""
    small = word.lower()
    if small in RECOMPUTE:
        return {"recompute": small}
    if small in SCHEDULES:
        return {"schedule": SCHEDULES[small]}
    found = re.fullmatch(r"([a-z]+)[=_-]?(\d{1,9})?", small)
    name, number = found.groups() if found else ("", None)
    if name in WRAPPERS:
        return {"zero": WRAPPERS[name]} | ({"dp": int(number)} if number else {})
    name = SAME.get(name, name)
    if name not in NUMBERS or number is None or not _can_be(name, int(number)):
        known = f"{', '.join(NUMBERS)} with a number, {', '.join((*RECOMPUTE, *SCHEDULES))}"
        raise Refusal(f"the word {word!r} in a layout", known, "write it as tp8 pp4 dp16 zero1")
    return {name: int(number)}


def _can_be(name: str, number: int) -> bool:
    return number <= 3 if name == "zero" else number > 0


def _with_chunks(said: dict[str, Any]) -> dict[str, Any]:
    """As many chunks as the schedule has on a rank; of the interleaved two, if nothing is said."""
    chunks = said.get("chunks")
    name = said.get("schedule", "interleaved 1F1B" if (chunks or 1) > 1 else "1F1B")
    if said.get("pp", 1) == 1 and (chunks or "schedule" in said):
        raise Refusal(
            f"{name} in {chunks or 1} chunks", "no pp in the layout", "a pipeline has pp2 or more"
        )
    has = KINDS[name].chunks or max(2, chunks or 2)
    if chunks not in (None, has):
        why = f"{KINDS[name].word} has {has} on each rank; interleaved has as many as are asked for"
        raise Refusal(f"{chunks} chunks", name, why)
    return said | {"schedule": name, "chunks": has}


def judge(problem: Problem, layout: Layout, plan: Plan) -> Verdict:
    """Whether a layout can be used, what it costs, and what of a plan is near and better.

    Args:
        problem: what the plan was asked for.
        layout: the one to be judged.
        plan: what a search has found.
    """
    why = _against(problem, layout)
    memory = None if why else problem.memory(layout)
    if memory and memory.total > problem.room:
        why = f"it does not fit: {memory.total / 1e9:.1f} GB of {problem.room / 1e9:.1f}"
    seconds = None if why else problem.seconds(problem.config, layout)
    known = [*plan.choices, *_same_degrees(problem, layout)]
    better = [c for c in known if seconds is None or c.seconds < 0.99 * seconds]
    nearest = min(better, key=lambda c: (distance(c.layout, layout), c.seconds), default=None)
    return Verdict(layout, why, memory, seconds, nearest)


def distance(one: Layout, two: Layout) -> float:
    """How far two layouts are apart: doublings of the degrees, and other fields that differ."""
    doubled = sum(abs(math.log2(getattr(one, axis) / getattr(two, axis))) for axis in AXES)
    rest = (field.name for field in fields(Layout) if field.name not in AXES)
    return doubled + 0.1 * sum(getattr(one, name) != getattr(two, name) for name in rest)


def _same_degrees(problem: Problem, layout: Layout) -> list[Choice]:
    """The fastest that fits of the layouts with the same degrees; nothing if none can be."""
    if _against(problem, layout, degrees_alone=True):
        return []
    ways = sorted(ways_of(problem, layout), key=problem.rough)
    return [best_of(problem, ways[:2])] if ways else []


def _against(problem: Problem, layout: Layout, *, degrees_alone: bool = False) -> str:
    """Why it cannot be, before memory is asked; empty if nothing speaks against it."""
    count, replica = problem.cluster.count, layout.gpus // layout.dp
    if replica > count:
        return f"a replica takes {replica} GPUs, and there are {count}"
    if count % replica:
        return f"a replica takes {replica} GPUs, which do not divide {count}"
    if layout.gpus != count:
        return f"it takes {layout.gpus} GPUs, and there are {count}: dp{count // replica} takes all"
    return "" if degrees_alone else breaks_a_rule(problem, layout)
