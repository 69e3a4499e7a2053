"""divergence_bisect: the first step and layer, rounding let pass, few replays."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from course_lib.grade.suite import Exercise, Run, check, diagnosis

EXERCISE = Exercise(
    title="The step and the layer where two runs diverge",
    core=False,
    minutes=25,
    order=80,
    defines=("agree", "divergence_bisect"),
    library=(),
    hints=(
        "`agree` is one comparison; write it so that it is false where a NaN is on either side. "
        "For the search, keep two numbers: before `low` all agrees, at `high` something does not. "
        "Which step halves what is between them, and what does each answer move?",
        "Begin with `low, high = 0, steps`, so that `high = steps` means: never. A step that is "
        "bad becomes `high`, one that agrees makes `low = step + 1`. One look at a step answers "
        "both questions: note the layer when you see it, so that no step is replayed twice.",
        "`apart = [name for name in layers if not agree(...)]` at `step = (low + high) // 2`; if "
        "there are any, `high, first = step, (step, apart[0])`. In `agree`: both tensors as "
        "doubles, `max` of the two dtypes' eps, and `bool(difference.norm() <= limit)`.",
    ),
)

LAYERS = ("embedding", "blocks.2.norm", "blocks.2.attention", "blocks.10.norm", "blocks.10.ffn",
          "head", "adam.square")  # fmt: skip
SCALES = (1.0, 30.0, 1e-3, 1.0, 1e3, 1e-4, 1e-25)  # the optimizer's squares are tiny
WIDTH = 6  # elements of each layer's tensor
NOISE, FAULT = 0.85, 1.2  # times the tolerance; rounding to the dtype adds up to 0.125
Record = dict[str, torch.Tensor]  # of each layer, what it held at every step: [steps, WIDTH]
Judge = Callable[[torch.Tensor, torch.Tensor, int], bool]


# --- what runs on the rank -----------------------------------------------------------------------
class Probe:
    """Replays a run, and counts how often."""

    def __init__(self, record: Record) -> None:
        self.record, self.count = record, 0

    def __call__(self, step: int) -> Record:
        """What every layer held, sorted by name."""
        steps = len(next(iter(self.record.values())))
        if not 0 <= step < steps:
            raise IndexError(f"probe({step}): the steps of this run are 0 to {steps - 1}")
        self.count += 1
        return {name: self.record[name][step].clone() for name in sorted(self.record)}


def drive_agree(
    learner: Any, group: Any, cases: list[tuple[torch.Tensor, torch.Tensor, int]]
) -> dict[str, Any]:
    """The answer of `agree` for each pair."""
    answers, left = [], []
    for first, second, step in cases:
        pair = first.view(2, -1).t(), second.view(2, -1).t()  # not contiguous
        answers.append(learner.agree(*pair, step))
        left.append([first, second])
    return {"answers": [a.item() if torch.is_tensor(a) else a for a in answers], "left": left}


def drive(
    learner: Any, group: Any, runs: list[tuple[Record, Record]], layers: list[list[str]]
) -> dict[str, Any]:
    """The answer and the replays for each pair of runs."""
    answers, counts = [], []
    for (first, second), names in zip(runs, layers, strict=True):
        probes = Probe(first), Probe(second)
        steps = len(first[names[0]])
        answer = learner.divergence_bisect(*probes, steps, names)
        answers.append(list(answer) if isinstance(answer, (tuple, list)) else answer)
        counts.append([probe.count for probe in probes])
    return {"answers": answers, "counts": counts}


# --- what they must bring back -------------------------------------------------------------------
def tolerance(step: int, *dtypes: torch.dtype) -> float:
    """The relative difference that is rounding, of the coarsest of these dtypes."""
    return 4 * math.sqrt(step + 1) * max(torch.finfo(dtype).eps for dtype in dtypes)


def _apart(run: Run, right: torch.Tensor, times: float, other: torch.dtype) -> torch.Tensor:
    """A copy of [steps, WIDTH] in another dtype, `times` the tolerance away at each step."""
    away = run.random(tuple(right.shape))
    away /= away.norm(dim=1, keepdim=True)
    size = right.double().norm(dim=1) * times
    size *= torch.tensor([tolerance(step, right.dtype, other) for step in range(len(right))])
    return (right.double() + away * size[:, None]).to(other)


class Pair(NamedTuple):
    """Two runs, and where they part.

    Attributes:
        what: in words.
        layers: in the order of execution.
        first: the reference.
        second: the suspect.
        answer: None if they never part.
    """

    what: str
    layers: list[str]
    first: Record
    second: Record
    answer: list[Any] | None


def _pair(
    run: Run, steps: int, dtypes: tuple[torch.dtype, torch.dtype], nan: bool = False, at: int = -2
) -> Pair:
    """Runs that part at a hidden layer in step `at`; never for -1, at a hidden step for -2."""
    order = [LAYERS[i] for i in run.random(len(LAYERS)).argsort().tolist()]
    at = run.number(0, steps) if at == -2 else at
    layer = run.number(1, len(order))
    first, second = {}, {}
    for place, name in enumerate(order):
        scale = SCALES[LAYERS.index(name)]
        if dtypes[1] == torch.float16:
            scale = min(max(scale, 0.1), 10.0)  # what it can hold
        right = (run.random((steps, WIDTH)) * scale).to(dtypes[0])
        fine = _apart(run, right, NOISE, dtypes[1])
        wrong = torch.full_like(fine, math.nan) if nan else _apart(run, right, FAULT, dtypes[1])
        start = steps if at < 0 else at + (place < layer)
        first[name], second[name] = right, torch.cat([fine[:start], wrong[start:]])
    names = " and ".join(dict.fromkeys(str(dtype).removeprefix("torch.") for dtype in dtypes))
    what = f"runs of {steps} step{'s' * (steps > 1)} in {names}{', with NaNs' * nan}"
    return Pair(what, order, first, second, None if at < 0 else [at, order[layer]])


def judges() -> dict[str, Judge]:
    """Wrong ways to compare, under the sentences that explain them."""

    def close(right: torch.Tensor, other: torch.Tensor, limit: float, size: float) -> bool:
        return float((other.double() - right.double()).norm()) <= limit * size

    def norm(right: torch.Tensor) -> float:
        return float(right.double().norm())

    def eps(right: torch.Tensor, other: torch.Tensor) -> list[float]:
        return [torch.finfo(tensor.dtype).eps for tensor in (right, other)]

    return {
        "every rounding counts as a fault: let differences within the tolerance pass":
            lambda r, o, step: bool((r == o).all()),
        "the tolerance must grow with the step: rounding errors add up":
            lambda r, o, step: close(r, o, 4 * max(eps(r, o)), norm(r)),
        "the tolerance grows with the root of the step's number, not with the number":
            lambda r, o, step: close(r, o, 4 * (step + 1) * max(eps(r, o)), norm(r)),
        "an absolute tolerance: small layers never differ and large ones always do":
            lambda r, o, step: close(r, o, tolerance(step, r.dtype, o.dtype), 1.0),
        "the eps of the finer dtype: the coarser one rounds more":
            lambda r, o, step: close(r, o, 4 * math.sqrt(step + 1) * min(eps(r, o)), norm(r)),
        "the tolerance is a part of the reference's norm, not of the suspect's":
            lambda r, o, step: close(r, o, tolerance(step, r.dtype, o.dtype), norm(o)),
        "float32's eps for every dtype":
            lambda r, o, step: close(r, o, tolerance(step, torch.float32), norm(r)),
        "the eps of the suspect's dtype: the reference may have the coarser one":
            lambda r, o, step: close(r, o, tolerance(step, o.dtype), norm(r)),
        "a NaN passed: with a NaN every comparison is false, so ask what must hold":
            lambda r, o, step: bool(o.isnan().any()) or close(
                r, o, tolerance(step, r.dtype, o.dtype), norm(r)),
        "the squares of small float32 numbers are 0: compute in float64":
            lambda r, o, step: bool(
                (r.float() - o.float()).square().sum().sqrt()
                <= tolerance(step, r.dtype, o.dtype) * r.float().square().sum().sqrt()),
    }  # fmt: skip


def found(pair: Pair, judge: Judge, order: list[str]) -> list[Any] | None:
    """What the search finds if it compares in this way and takes the layers in this order."""
    steps, first = len(pair.first[order[0]]), None
    low, high = 0, steps
    while low < high:
        step = (low + high) // 2
        bad = [
            name
            for name in order
            if not judge(pair.first[name][step], pair.second[name][step], step)
        ]
        low, high = (low, step) if bad else (step + 1, high)
        first = [step, bad[0]] if bad else first
    return first


def _likely(pair: Pair) -> dict[str, Any]:
    """What known slips answer for these runs."""

    def right(first: torch.Tensor, second: torch.Tensor, step: int) -> bool:
        gap = float((second.double() - first.double()).norm())
        return gap <= tolerance(step, first.dtype, second.dtype) * float(first.double().norm())

    by_name = found(pair, right, sorted(pair.layers))
    known = {why: found(pair, judge, pair.layers) for why, judge in judges().items()}
    if pair.answer:
        late = [len(pair.first[pair.layers[0]]) - 1, pair.layers[0]]
        known["the runs differ here, but they diverged at an earlier step"] = late
        known["the first layer by name: `layers` has the order of execution"] = by_name
        known["the layer before: it still agrees"] = [
            pair.answer[0],
            pair.layers[pair.layers.index(pair.answer[1]) - 1],
        ]
    return {why: other for why, other in known.items() if other != pair.answer}


def _pairs(run: Run) -> tuple[Any, list[Pair]]:
    """Runs of many lengths and dtypes that part somewhere, and some that never do."""
    f64, f32, f16, b16 = torch.float64, torch.float32, torch.float16, torch.bfloat16
    pairs = [
        _pair(run, 1000, (f32, f32)), _pair(run, run.number(40, 200), (f64, f64)),
        _pair(run, 37, (b16, b16)), _pair(run, run.number(20, 40), (f32, b16)),
        _pair(run, 33, (f16, f16)), _pair(run, 100, (f64, f32)), _pair(run, 25, (b16, f32)),
        _pair(run, 64, (f32, f32), nan=True), _pair(run, 8, (f32, f32), at=7),
        _pair(run, 65, (f64, f64), at=0), _pair(run, 1, (f32, f32), at=0),
        _pair(run, 500, (f32, f32), at=-1), _pair(run, 32, (f32, b16), at=-1),
        _pair(run, 1, (f64, f64), at=-1), _pair(run, 2, (f32, f32), at=1),
    ]  # fmt: skip
    given = {"runs": [(p.first, p.second) for p in pairs], "layers": [p.layers for p in pairs]}
    return run(drive, given), pairs


def _answers(run: Run, parted: bool) -> None:
    """Compares the answers of the runs that part, or of those that never do."""
    result, pairs = _pairs(run)
    for pair, answer in zip(pairs, result.outputs[0]["answers"], strict=True):
        if (pair.answer is not None) == parted:
            likely = {} if answer == pair.answer else _likely(pair)
            run.equal(answer, pair.answer, f"where {pair.what} part", likely=likely)


@check("agree: relative to the norm, the dtype and the step", points=3, code="E")
@diagnosis("compare with the formula of the task, both sides in float64")
def check_agree(run: Run) -> None:
    """E: just within the tolerance and well outside of it."""
    cases, wanted, names = [], [], []
    dtypes = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
    mixed = [(torch.float32, torch.bfloat16), (torch.bfloat16, torch.float32)]
    for first, second in [(d, d) for d in dtypes] + mixed:
        kind = f"{str(first)[6:]} and {str(second)[6:]}"
        for scale in (1.0, 1e-25, 1e3) if first.itemsize > 2 else (1.0,):
            right = (run.random((40, WIDTH)) * scale).to(first)
            for times in (NOISE, FAULT):
                other = _apart(run, right, times, second)
                for step in (0, 1, 39):
                    cases.append((right[step], other[step], step))
                    wanted.append(times == NOISE)
                    names.append(
                        f"{kind}, size {scale:g}, at step {step}, {times} times the tolerance apart"
                    )
    one, zero = torch.ones(4), torch.tensor([1.0, 0.0, 1.0, 1.0])
    hole = torch.where(zero == 0, math.nan, zero)
    cases += [(one, one * math.nan, 5), (one, one * math.inf, 5), (one * 0, one * 0, 0)]
    cases += [(zero, hole, 5), (one.bfloat16(), 2.5 * one.bfloat16(), 999)]
    wanted += [False, False, True, False, False]
    names += ["a suspect that is NaN", "a suspect that is infinite", "tensors of zeros"]
    names.append("a suspect that is NaN where the reference is 0")
    names.append("a suspect in bfloat16 that is 2.5 times the reference, at step 999")
    found = run(drive_agree, {"cases": cases}).outputs[0]
    answers = found["answers"]
    slips = {} if answers == wanted else judges()
    cause = next(
        (why for why, judge in slips.items() if [judge(*case) for case in cases] == answers), ""
    )
    for agreed, answer, what in zip(wanted, answers, names, strict=True):
        run.equal(answer, agreed, f"agree for {what}", likely={cause: not agreed})
    for (*given, _), left, what in zip(cases, found["left"], names, strict=True):
        before, after = ([torch.nan_to_num(t, 7.0) for t in pair] for pair in (given, left))
        run.equal(after, before, f"what was given to agree for {what}")


@check("the first step, and its first layer in the order of execution", points=4, code="E")
@diagnosis("a step that agrees moves the lower end past it, another the upper end to it")
def check_first(run: Run) -> None:
    """E: many lengths, dtypes and sizes; the first and the last step; NaNs."""
    _answers(run, parted=True)


@check("None for runs that only round differently", points=2, code="E")
@diagnosis("rounding must pass at late steps as well, and the end of the search means: never")
def check_never(run: Run) -> None:
    """E: runs that agree to the end."""
    _answers(run, parted=False)


@check("at most ⌈log2(steps)⌉ + 1 replays of each run", points=3, code="B")
@diagnosis("halve the range with every replay, and replay no step twice")
def check_replays(run: Run) -> None:
    """B: the probes count."""
    result, pairs = _pairs(run)
    for pair, counts in zip(pairs, result.outputs[0]["counts"], strict=True):
        steps = len(pair.first[pair.layers[0]])
        most = math.ceil(math.log2(steps)) + 1
        for name, count in zip(("reference", "suspect"), counts, strict=True):
            twice = "a step was replayed again: keep what you saw, or the answer that it gave"
            linear = "every step in turn: halve what is left instead"
            cause = linear if count > 2 * most + 2 else twice
            run.at_most(count, most, f"replays of the {name} for {pair.what}", cause=cause)
