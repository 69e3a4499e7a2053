"""fastest_layout: layouts that the training command accepts; a simulated step's time is the figure.

Source: `course_lib.cluster`, which simulates the course's own training program. The bound is 1: no
GPU computes faster than at its peak rate.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from course_lib.cluster import Failed, simulate
from course_lib.grade.suite import Exercise, Run, check, describe
from course_lib.model import flops_per_token
from course_lib.plan import parse_cluster
from course_lib.train import RunConfig, find_problems
from course_lib.train.simulated import equal_ranks, one_step
from grading.references.open import plans

EXERCISE = Exercise(
    title="Open: the fastest layout of four runs",
    core=False,
    minutes=60,
    order=45,
    open=("times the time of the operations at the peak rate", 15.248, 4.5877),
    library=(),
    hints=(
        "First find any layout that fits, for each case. Which memory is too large: state, "
        "activations or logits? zero, recompute and micro_batches each reduce one of them.",
        "Then look where the time goes. FSDP hides its messages behind the computation as long as "
        "a rank has enough tokens. If there are fewer sequences than ranks, some axis must divide "
        "the model instead: compare tp, with and without sequence_parallel, with pp.",
        "Write a loop over the few hundred combinations and simulate them all, with `simulate` and "
        "`one_step` as in section 9. Keep the fastest that fits of each case, and return these.",
    ),
)

SMALL: dict[str, Any] = {
    "layers": 8, "hidden": 2048, "heads": 16, "kv_heads": 8, "ffn": 5632, "sequence": 2048,
    "precision": "bf16",
}  # fmt: skip
LARGE: dict[str, Any] = {
    "layers": 8, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn": 14336, "sequence": 4096,
    "precision": "bf16",
}  # fmt: skip
CASES = (
    ("16x8xH100", 20, {**SMALL, "batch": 128}),
    ("4x8xH100", 3, {**SMALL, "batch": 128}),
    ("4x8xH100", 20, {**LARGE, "batch": 4}),
    ("4x8xA100", 6, {**LARGE, "batch": 64}),
)
MOST = 16  # micro-batches, for the time that a simulation takes
OPTIONS = {
    each.name: type(each.default)
    for each in fields(RunConfig)
    if each.name in ("pp", "dp", "tp", "zero", "micro_batches", "recompute", "sequence_parallel",
                     "schedule", "chunks")
}  # fmt: skip


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(learner: Any, group: Any, cases: list[list[Any]]) -> dict[str, Any]:
    """The layout of each case."""
    return {"plans": [learner.fastest_layout(*case) for case in cases]}


# --- what is looked at ---------------------------------------------------------------------------
def _name(number: int) -> str:
    """A case as the reader knows it: by its cluster and its room."""
    cluster, room, _ = CASES[number]
    return f"case {number} ({cluster}, {room} GB)"


def _config(run: Run, number: int, answer: Any) -> RunConfig:
    """The run with the answer's layout, if that is one."""
    (cluster, _, given), case = CASES[number], _name(number)
    run.true(
        isinstance(answer, dict),
        f"{case}: this is not a dict of options",
        measured=describe(answer),
    )
    for name, value in answer.items():
        run.true(
            name in OPTIONS,
            f"{case}: {name!r} is not an option of the layout",
            expected=", ".join(OPTIONS),
        )
        run.true(
            type(value) is OPTIONS[name],
            f"{case}: {name} is {describe(value)}, of type {type(value).__name__}",
            expected=OPTIONS[name].__name__,
        )
    config = replace(RunConfig(**given), **answer)
    world = parse_cluster(cluster).count
    for problem in find_problems(config, world):
        run.fail(
            f"{case}: the training command refuses this layout",
            measured=f"asked: {problem.asked}; found: {problem.found}",
            cause=problem.why,
        )
    run.at_most(config.micro_batches, MOST, f"{case}: the number of micro-batches")
    return config


def _times_the_bound(run: Run, number: int, config: RunConfig) -> float:
    """The simulated time of a step over that of the operations at the peak rate."""
    cluster, room, _ = CASES[number]
    try:
        found = simulate(one_step, config.world, config, cluster=cluster, equal=equal_ranks(config))
    except Failed as error:
        what = f"{_name(number)}: the step cannot be simulated"
        run.fail(what, measured=str(error.cause or error))
    peak = max(memory.peak for memory in found.memories.values())
    run.true(
        peak <= room * 10**9,
        f"{_name(number)}: a rank holds too much",
        measured=f"{peak / 1e9:.2f} GB at its peak",
        expected=f"at most {room} GB",
    )
    where = parse_cluster(cluster)
    operations = flops_per_token(config.model) * config.batch * config.sequence
    return max(found.values.values()) * where.count * where.gpu.peak["bf16"] / operations


def _ask(run: Run) -> list[RunConfig]:
    found = plans.ask(run, drive, CASES)
    return [_config(run, number, answer) for number, answer in enumerate(found)]


@check("layouts that the training command accepts", points=3, code="E")
def check_layouts(run: Run) -> None:
    """E: the four cases."""
    _ask(run)


@check("the figure over the four cases, each within its memory", points=2, code="S")
def check_time(run: Run) -> None:
    """S: the mean of the step's time."""
    configs = _ask(run)
    run.figure = plans.mean(
        [_times_the_bound(run, number, config) for number, config in enumerate(configs)]
    )
