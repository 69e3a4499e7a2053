"""bias_balance: the bias steers the choice alone, and all ranks agree on its moves."""

from __future__ import annotations

from typing import Any

import torch

from course_lib.grade.suite import Exercise, Run, check, diagnosis
from grading.references.tensor_parallel.cut_layers import one_all_reduce, sends

EXERCISE = Exercise(
    title="Balanced by a bias, without a loss",
    core=False,
    minutes=15,
    order=6,
    defines=("choose", "update_bias"),
    hints=(
        "Which of the two results of `choose` depends on the bias? And how does a rank learn how "
        "many tokens an expert got from the other ranks?",
        "`(scores + bias).topk(K)` gives the numbers; `scores.gather(-1, chosen)` the weights, "
        "which are then divided by their sum. The load is a `torch.bincount` with `minlength`, "
        "summed over the group by one all-reduce.",
        "`bias += rate * (load.double().mean() - load).sign()`: in place, the step has the same "
        "size for every expert, however far its load is from the mean.",
    ),
)

WORLD, RATE = 3, 0.125


# --- what runs on the ranks ----------------------------------------------------------------------
def drive_choice(
    learner: Any, group: Any, scores: torch.Tensor, bias: torch.Tensor, toward: torch.Tensor
) -> dict[str, Any]:
    """Chooses, and takes the gradient of the weights; the scores are not contiguous."""
    leaf = scores.t().contiguous().t().requires_grad_()
    watched = bias.clone().requires_grad_()
    pair = learner.choose(leaf, watched, toward.shape[1])
    good = isinstance(pair, (tuple, list)) and len(pair) == 2
    both: tuple[Any, Any] = pair if good else (pair, None)
    chosen, weights = both
    if getattr(weights, "requires_grad", False) and weights.shape == toward.shape:
        (weights * toward).sum().backward()
    return {"chosen": chosen, "weights": weights, "scores": leaf.grad, "bias": watched.grad}


def drive_moves(
    learner: Any, group: Any, bias: torch.Tensor, batches: list[torch.Tensor]
) -> dict[str, Any]:
    """Moves a bias, once for each batch."""
    found, place = [], bias.data_ptr()
    for chosen in batches:
        learner.update_bias(bias, chosen, RATE, group)
        found.append(bias.clone())
    return {"biases": found, "stayed": bias.data_ptr() == place}


# --- what they must bring back -------------------------------------------------------------------
def weighed(values: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    """The values of those chosen, in parts of their sum."""
    picked = values.gather(-1, chosen)
    return picked / picked.sum(-1, keepdim=True)


def moved(bias: torch.Tensor, load: torch.Tensor) -> torch.Tensor:
    """The bias after one move."""
    return bias + RATE * (load.double().mean() - load).sign().to(bias.dtype)


@check("chosen with the bias, weighed without it", points=4, code="E")
@diagnosis("add the bias only for the choice")
def check_choice(run: Run) -> None:
    """E: float64; gradients reach the scores, and not the bias."""
    tokens, experts, top_k = run.number(6, 12), run.number(5, 9), 3
    scores, bias = run.random((tokens, experts)).softmax(-1), run.random(experts).abs() / 2
    toward = run.random((tokens, top_k))
    found = run(drive_choice, {"scores": scores, "bias": bias, "toward": toward}).outputs[0]
    leaf, together = scores.clone().requires_grad_(), scores + bias
    chosen = together.topk(top_k).indices
    likely = {
        "the bias is missing": scores.topk(top_k).indices,
        "the bias is subtracted": (scores - bias).topk(top_k).indices,
        "these are the right ones in another order: best first": chosen.sort(-1).values,
    }
    run.equal(found["chosen"], chosen, "the choice", likely=likely)
    weights = weighed(leaf, chosen)
    likely = {
        "they contain the bias, which is only for the choice": weighed(together, chosen),
        "they are not divided by their sum": scores.gather(-1, chosen),
        "divided by the sum of all scores, not of the chosen ones": scores.gather(-1, chosen)
        / scores.sum(-1, keepdim=True),
    }
    run.close(found["weights"], weights.detach(), "the weights", likely=likely)
    (weights * toward).sum().backward()
    cause = "it flows through the weights"
    run.true(found["scores"] is not None, "the scores have no gradient", cause=cause)
    run.close(found["scores"], leaf.grad, "the gradient of the scores")
    run.true(found["bias"] is None, "the bias has a gradient", cause="only loads change it")


def _moves(run: Run) -> tuple[torch.Tensor, list[list[torch.Tensor]], Any]:
    """A bias, each rank's batches, and the run.

    Loads are uneven, then even; then index 1 has no tokens; then expert 0 has one more than others.
    """
    experts = run.number(5, 9)
    bias = run.random(experts)
    even = torch.arange(experts)[:, None]
    given = []
    for rank in range(WORLD):
        tokens = run.integers(0, experts, (4 + 3 * rank, 2)).clamp(max=experts - 1 - rank)
        later = run.integers(0, experts, (0 if rank == 1 else 5, 2))
        more = torch.cat([even, even[:1]]) if rank == 1 else even
        given.append([tokens, even.roll(rank), later, more])
    inputs = [{"bias": bias, "batches": batches} for batches in given]
    return bias, given, run(drive_moves, inputs, world=WORLD)


@check("the bias moves by the loads of all ranks", points=4, code="E")
@diagnosis("the sign of the mean load minus the expert's load, times the rate")
def check_moves(run: Run) -> None:
    """E: uneven loads, even ones, a rank without tokens, and a mean that is no whole number."""
    bias, given, result = _moves(run)
    for rank, found in enumerate(run.each(result.outputs)):
        right = bias
        cause = "the module's buffer stays the same tensor: write into it"
        run.true(found["stayed"], "the bias has moved to other memory", cause=cause)
        for step, after in enumerate(found["biases"]):
            loads = [torch.bincount(mine[step].flatten(), minlength=len(bias)) for mine in given]
            load = torch.stack(loads).sum(0)
            mean = load.double().mean()
            missing = mean - load
            before, right = right, moved(right, load)
            likely = {
                "moved by this rank's own load: sum the loads over the ranks": moved(
                    before, loads[rank]
                ),
                "the wrong direction: busy experts must become less attractive": 2 * before - right,
                "moved by the size of the error, not by its sign": before + RATE * missing,
                "moved by the error relative to the mean, not by its sign": before
                + RATE * missing / mean,
                "the mean is not a whole number: do not round it down": before
                + RATE * (mean.floor() - load).sign(),
                "the mean is not a whole number: do not round it up": before
                + RATE * (mean.ceil() - load).sign(),
                "it has not moved: change it in place": before,
                "at the mean load a bias must not change; here it went down": before
                + RATE * torch.where(missing > 0, 1.0, -1.0),
                "at the mean load a bias must not change; here it went up": before
                + RATE * torch.where(missing < 0, -1.0, 1.0),
            }
            run.close(after, right, f"the bias after move {step + 1}", likely=likely)


@check("one all-reduce of E int64", points=2, code="B")
@diagnosis("count first, then sum the counts over the ranks")
def check_bytes(run: Run) -> None:
    """B: call by call, from the ledger."""
    bias, given, result = _moves(run)
    experts, moves = len(bias), len(given[0])
    for rank, ledger in enumerate(run.each(result.ledgers)):
        once, one, empty = (one_all_reduce(count, WORLD, rank) for count in (experts, 1, 0))
        gathered = f"all_gather, {8 * experts * (WORLD - 1):,} bytes sent"
        likely = {
            "nothing is sent: the loads of the other ranks count too": [],
            "twice as many: one all-reduce is enough": once * 2 * moves,
            "a second all-reduce, even an empty one, is one too many": (once + empty) * moves,
            "E all-reduces of one number: one of E numbers is enough": one * experts * moves,
            "all ranks' counts are gathered: sum them": [gathered] * moves,
        }
        sent = sends(result, rank, 0, len(ledger.events))
        run.equal(sent, once * moves, f"what {moves} moves send", likely=likely)
