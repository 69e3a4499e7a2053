"""scaled_lr and critical_batch: two rules, a warm-up, and one number in one all-reduce."""

from __future__ import annotations

import math
from typing import Any

import torch

from course_lib.grade.suite import Exercise, Run, check, diagnosis, in_part
from course_lib.trace import wire_bytes

EXERCISE = Exercise(
    title="A larger batch, a larger step",
    core=False,
    minutes=20,
    order=8,
    defines=("scaled_lr", "critical_batch"),
    hints=(
        "How many examples are in one step of the whole job, and how many were there when the "
        "rate was tuned? Their ratio is k, whatever the number of ranks. For B: which of the two "
        "squared lengths does every rank know already, and which one must be averaged?",
        "First compute the final rate: base_lr times k or √k. Before step `warmup`, the rate is "
        "on the straight line from (0, base_lr) to (warmup, final rate). For B, average the "
        "ranks' |g|²; the squared length of the averaged gradient is a different number.",
        "`base_lr + (target - base_lr) * step / warmup` while step < warmup. `small = "
        'own.square().sum()`, then `all_reduce(small, group, "avg")`; `large` is '
        "`mean.square().sum()`. The rest is the three lines of the docstring, and `math.inf` if "
        "the second of them is not positive.",
    ),
)

RULES = ("linear", "sqrt")
LOCAL = 4  # examples of each rank


# --- what runs on the ranks ----------------------------------------------------------------------
def drive_rates(learner: Any, group: Any, cases: list[list[Any]]) -> dict[str, Any]:
    """Asks for one rate after the other; and for each with a rule that does not exist."""
    rates = [learner.scaled_lr(*case) for case in cases]
    return {"rates": rates, "refused": [_refused(learner, case) for case in cases]}


def _refused(learner: Any, case: list[Any]) -> str:
    try:
        return f"returned {learner.scaled_lr('cubic', *case[1:])!r}"
    except ValueError:
        return "ValueError"


def drive_batch(
    learner: Any, group: Any, own: torch.Tensor, mean: torch.Tensor, local_batch: int
) -> dict[str, Any]:
    """Asks for the critical batch size; says whether the gradients were left alone."""
    given = own.clone(), mean.clone()
    answer = learner.critical_batch(own, mean, local_batch, group)
    same = torch.equal(own, given[0]) and torch.equal(mean, given[1])
    return {"batch": answer, "same": same}


# --- the rates -----------------------------------------------------------------------------------
class Rates:
    """Hidden numbers, all rates that are asked for, and what came back.

    Args:
        run: of the check.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.base, self.tuned = run.number(1, 50) / 1000, 8 * run.number(2, 9)
        self.local, self.world = self.tuned // 2, run.number(5, 12)
        self.warmup = run.number(5, 20)
        last = self.warmup
        self.steps = (0, 1, last // 2, last - 1, last, last + 1, 10 * last)
        sizes = ((self.local, self.world, last), (self.tuned, 1, last), (self.tuned // 4, 4, last),
                 (self.tuned // 4, 2, last), (self.local, self.world, 0))  # fmt: skip
        self._cases = [
            (rule, self.base, self.tuned, local, world, step, warmup)
            for rule in RULES
            for local, world, warmup in sizes
            for step in self.steps
        ]
        inputs = {"cases": [list(case) for case in self._cases]}
        output, other = run(drive_rates, inputs, world=2).outputs
        run.equal(other, output, "what rank 1 answers, compared with rank 0,", rank=1)
        self.refused = dict(zip(self._cases, output["refused"], strict=True))
        self._rates = dict(zip(self._cases, output["rates"], strict=True))

    def compare(self, rule: str, local: int, world: int, step: int, warmup: int) -> None:
        """Compares one rate with the right one and with known wrong ones."""
        factor = local * world / self.tuned
        powers = {"linear": factor, "sqrt": math.sqrt(factor)}
        other = RULES[1 - RULES.index(rule)]

        def rate(scale: float, way: float) -> float:
            return self.base * (1 + (scale - 1) * min(1.0, way))

        way = step / warmup if warmup else 1.0
        after = (step + 1) / warmup if warmup else 1.0
        what = (
            f"{rule}, {world} ranks with {local} examples each, tuned for {self.tuned}: the "
            f"rate of step {step} with {warmup} steps of warm-up"
        )
        answer = self._rates[rule, self.base, self.tuned, local, world, step, warmup]
        likely = {
            "this is the scaled rate: there is no warm-up": rate(powers[rule], 1.0),
            "scaled by the number of ranks: what counts is the global batch": rate(
                world if rule == "linear" else math.sqrt(world), way
            ),
            f"this is the rule {other!r}": rate(powers[other], way),
            "one step too early: step 0 has base_lr": rate(powers[rule], after),
            "warmed up from 0: it must begin with base_lr": self.base
            * powers[rule]
            * min(1.0, way),
            "warmed up from 0, and one step too early": self.base * powers[rule] * min(1.0, after),
            "only a rank's own examples are counted: the batch is over all ranks": rate(
                powers[rule] / (world if rule == "linear" else math.sqrt(world)), way
            ),
            "not scaled at all": self.base,
        }
        self.run.close(answer, rate(powers[rule], way), what, likely=likely)


@check("the scaled rate, after the warm-up", points=2, code="E")
@diagnosis("k is local_batch · world / base_batch; the rate is base_lr · k or base_lr · √k")
def check_target(run: Run) -> None:
    """E: both rules; with and without warm-up."""
    rates = Rates(run)
    for rule in RULES:
        for step in rates.steps[-3:]:
            rates.compare(rule, rates.local, rates.world, step, rates.warmup)
        for step in rates.steps:
            rates.compare(rule, rates.local, rates.world, step, 0)
    for (_, _, tuned, local, world, step, warmup), refused in rates.refused.items():
        what = f"what a rule 'cubic' leads to (k = {local * world / tuned:g}, "
        run.equal(refused, "ValueError", f"{what}step {step}, {warmup} steps of warm-up)")


@check("the same global batch on more ranks leaves the rate as it is", points=1, code="E")
@diagnosis("k depends on the global batch, not on the number of ranks")
def check_same_batch(run: Run) -> None:
    """E: one rank with the whole batch, four with a quarter each; two with a quarter each."""
    rates = Rates(run)
    for rule in RULES:
        for world, part in ((4, 4), (1, 1), (2, 4)):
            for step in rates.steps:
                rates.compare(rule, rates.tuned // part, world, step, rates.warmup)


@check("the warm-up: from base_lr in step 0 by equal amounts", points=2, code="E")
@diagnosis("a straight line from (0, base_lr) to (warmup, scaled rate)")
def check_warmup(run: Run) -> None:
    """E: both rules."""
    rates = Rates(run)
    for rule in RULES:
        for step in rates.steps[:4]:
            rates.compare(rule, rates.local, rates.world, step, rates.warmup)


# --- the critical batch size ---------------------------------------------------------------------
def _estimate(local: float, small: float, large: float, world: int) -> float:
    """B of the two squared lengths."""
    batch = local * world
    signal = (batch * large - local * small) / (batch - local)
    return (small - large) / (1 / local - 1 / batch) / signal if signal > 0 else math.inf


def _batches(run: Run, world: int, noise: float) -> tuple[Any, torch.Tensor]:
    """The run with one true gradient and some noise on each rank, and the ranks' gradients."""
    true = run.random(12)
    owns = torch.stack([true + noise * run.random(12) for _ in range(world)]) / 20
    if noise > 1:  # the gradients point away from each other, and their mean is nearly nothing
        owns = owns - 0.95 * owns.mean(0)
    inputs = [{"own": own, "mean": owns.mean(0), "local_batch": LOCAL} for own in owns]
    return run(drive_batch, inputs, world=world), owns


@check("the critical batch size, the same on every rank", points=3, code="E")
@diagnosis("average the ranks' |g|², then compute the three lines of the docstring")
@in_part
def check_batch(run: Run) -> None:
    """E: two and three ranks; and gradients that are nothing but noise."""
    for world, noise in ((3, 0.5), (2, 0.5), (3, 5.0)):
        result, owns = _batches(run, world, noise)
        lengths = owns.square().sum(1).tolist()
        small, large = sum(lengths) / world, float(owns.mean(0).square().sum())
        right = _estimate(LOCAL, small, large, world)
        for rank, answer in enumerate(run.each(result.column("batch"))):
            what = f"the critical batch size of {world} ranks"
            run.true(
                isinstance(answer, (int, float)),
                f"{what} is not a number",
                measured=repr(answer)[:100],
            )
            if math.isinf(right):
                run.true(
                    answer == right,
                    f"{what} where the gradient is only noise",
                    expected="inf",
                    measured=f"{answer:.6g}",
                    cause="the estimate of the true "
                    "gradient's length is not positive: B is infinite",
                )
                continue
            known = {
                "counted in local batches, not in examples": right / LOCAL,
                "this is noise / S: S, the squared length of the mean gradient, contains noise as "
                "well":
                    (small - large) / (1 / LOCAL - 1 / (LOCAL * world)) / large,
                "this rank's own |g|² was taken: average it over the ranks":
                    _estimate(LOCAL, lengths[rank], large, world),
                "the sum of the ranks' |g|² was taken, not the mean":
                    _estimate(LOCAL, small * world, large, world),
            }  # fmt: skip
            # Infinity is near to every number, as differences go.
            finite = {why: value for why, value in known.items() if math.isfinite(value)}
            run.true(
                math.isfinite(answer),
                f"{what} is infinite",
                expected=f"{right:.6g}",
                cause=next((why for why in known if why not in finite), ""),
            )
            run.close(float(answer), right, what, likely=finite)


@check("eight bytes in one all-reduce, and the gradients are not changed", points=2, code="B")
@diagnosis("average the squared length, one float64, and not the gradient")
def check_bytes(run: Run) -> None:
    """B: exact, on two ranks."""
    _batches(run, 3, 0.5)  # the same draws as above
    world = 2
    result, owns = _batches(run, world, 0.5)
    right = [wire_bytes("all_reduce", 8, world, rank, 8)[0] for rank in range(world)]
    whole = [wire_bytes("all_reduce", owns[0].nbytes, world, r, 8)[0] for r in range(world)]
    likely: dict[str, Any] = {
        "the gradient itself was reduced: its mean is given already": whole,
        "the gradient itself was reduced as well: its mean is given already": [
            a + b for a, b in zip(right, whole, strict=True)
        ],
        "two numbers were sent: the mean's length is known to all": [2 * sent for sent in right],
        "nothing was sent: a rank does not know the other ranks' lengths": 0,
    }
    run.bytes(result, right, likely=likely)
    for same in run.each(result.column("same")):
        cause = "work on a number of your own, and do not change the gradient in place"
        run.true(same, "a gradient was changed", cause=cause)
