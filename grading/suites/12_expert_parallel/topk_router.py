"""topk_router: choices, weights, both losses, and the gradients that flow through them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from course_lib.grade.suite import Exercise, Run, check, diagnosis

EXERCISE = Exercise(
    title="The router: top-k experts, their weights, and two losses",
    core=True,
    minutes=30,
    order=1,
    library=(),
    hints=(
        "Three things need a gradient: the weights, the mean scores P and the logits in z. "
        "Counts need none. Which of the T·E scores belong to the choices, and how do you make "
        "them add up to 1?",
        "`wide` is the widest of both dtypes and float32 (`torch.promote_types`). Then logits = "
        "`x_TD.to(wide) @ weight_ED.to(wide).T`, and `scores.topk(k, -1)` returns values, which "
        "have a gradient, and indices; `torch.bincount(indices.flatten(), minlength=E)` counts.",
        "`balance = E * (counts.to(wide) / (T * k) * scores.sum(0) / T).sum()` and `z = "
        "logits.logsumexp(-1).square().sum() / T`, with `max(1, T)` in place of T: 0/0 is NaN. "
        "Divide the weights by `weights.sum(-1, keepdim=True)` if k > 1.",
    ),
)

PARTS = ("weights", "balance", "z")
USUAL, ONE, SOLE = "k between 1 and E", "k = 1", "k = E"


class Case(NamedTuple):
    """One call of the router; `given` are the gradients that come back to its weights."""

    x: torch.Tensor  # [T, D]
    weight: torch.Tensor  # [E, D]
    top_k: int
    given: torch.Tensor  # [T, k]


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(learner: Any, group: Any, cases: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Routes each case's tokens, whose memory is transposed, and asks for the gradients."""
    found = {}
    for name, case in cases.items():
        leaves = {"x": case["x"].t().contiguous().t(), "weight": case["weight"].clone()}
        for leaf in leaves.values():
            leaf.requires_grad_()
        routing = learner.topk_router(leaves["x"], leaves["weight"], case["top_k"])
        got = {part: getattr(routing, part, None) for part in ("chosen", *PARTS)}
        kept = all(torch.equal(leaf, case[key]) for key, leaf in leaves.items())
        found[name] = {**got, "gradients": gradients(got, leaves, case["given"]), "kept": kept}
    return found


def gradients(
    got: dict[str, Any], leaves: dict[str, torch.Tensor], given: torch.Tensor
) -> dict[str, dict[str, torch.Tensor | None] | None]:
    """For each part of a routing, what it sends back to token and matrix; None for nothing."""
    sent: dict[str, dict[str, torch.Tensor | None] | None] = {}
    for part in PARTS:
        value = got[part]
        sent[part] = None
        if isinstance(value, torch.Tensor) and value.requires_grad:
            back = given.to(value.dtype) if value.shape == given.shape else torch.ones_like(value)
            parts = torch.autograd.grad(
                value, list(leaves.values()), back, retain_graph=True, allow_unused=True
            )
            sent[part] = dict(zip(leaves, parts, strict=True))
    return sent


# --- by the rules --------------------------------------------------------------------------------
class Routed(NamedTuple):
    """What the router should say, and what wrong sums are made of."""

    chosen: torch.Tensor
    weights: torch.Tensor
    balance: torch.Tensor
    z: torch.Tensor
    logits: torch.Tensor
    scores: torch.Tensor


def routed(x: torch.Tensor, weight: torch.Tensor, top_k: int) -> Routed:
    """The rules, one after the other, in the dtype of the arguments."""
    logits = (x[:, None] * weight).sum(-1)
    scores = logits.softmax(-1)
    chosen = scores.detach().argsort(-1, descending=True)[:, :top_k]
    weights = scores.gather(-1, chosen)
    if top_k > 1:
        weights = weights / weights.sum(-1, keepdim=True)
    balance = balanced(counted(chosen, len(weight)) / max(1, chosen.numel()), scores)
    z = logits.logsumexp(-1).square().sum() / max(1, len(x))
    return Routed(chosen, weights, balance, z, logits, scores)


def counted(chosen: torch.Tensor, experts: int) -> torch.Tensor:
    """How often each expert was chosen, in float64."""
    return torch.bincount(chosen.flatten(), minlength=experts).double()


def balanced(share: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    """E · Σ f · P."""
    return scores.shape[1] * (share * scores.sum(0)).sum() / max(1, len(scores))


def wrong_balance(case: Case, right: Routed) -> dict[str, torch.Tensor]:
    """Known mistakes in the first loss."""
    experts, tokens = right.scores.shape[1], len(case.x)
    counts = counted(right.chosen, experts)
    firsts = counted(right.chosen[:, :1], experts) / tokens
    kept = torch.zeros_like(right.scores).scatter(-1, right.chosen, right.weights)
    return {
        "the factor E is missing": right.balance / experts,
        "f is divided by T: it is the share of all T·k choices": right.balance * case.top_k,
        "f counts only first choices: all k of a token count": balanced(firsts, right.scores),
        "f is the mean score, not a count": balanced(right.scores.mean(0), right.scores),
        "P is the sum of the scores, not their mean": right.balance * tokens,
        "f is the count, not its share": balanced(counts, right.scores),
        "P is the mean of the weights: it must be that of all E scores": balanced(
            counts / counts.sum(), kept),
    }  # fmt: skip


def wrong_z(right: Routed) -> dict[str, torch.Tensor]:
    """Known mistakes in the second loss."""
    high = right.logits.logsumexp(-1)
    return {
        "the square is missing": high.mean(),
        "squares of the logits: log-sum-exp is missing": right.logits.square().mean(),
        "the square of the mean, not the mean of squares": high.mean().square(),
        "the sum over tokens, not the mean": high.square().sum(),
        "scores were taken in place of logits": right.scores.logsumexp(-1).square().mean(),
    }


def wrong_weights(case: Case, right: Routed) -> dict[str, torch.Tensor]:
    """Known mistakes in the weights."""
    scores, logits = (all_TE.gather(-1, right.chosen) for all_TE in (right.scores, right.logits))
    return {
        "not divided by their sum": scores if case.top_k > 1 else torch.zeros(()),
        "a single weight is always 1: for k = 1 it is the score": torch.ones_like(scores),
        "logits in place of scores": logits,
        "the softmax of the chosen scores: a softmax of a softmax": scores.softmax(-1),
        "a sigmoid in place of the softmax": logits.sigmoid() / (
            logits.sigmoid().sum(-1, keepdim=True) if case.top_k > 1 else 1),
    }  # fmt: skip


# --- the cases -----------------------------------------------------------------------------------
def _usual(run: Run) -> dict[str, Case]:
    """Three values of k, hidden sizes, in float64."""
    tokens, width, experts = run.number(17, 30), run.number(5, 9), run.number(5, 9)
    top_k = run.number(2, 4)
    x, weight = run.random((tokens, width)), run.random((experts, width)) * 0.7
    return {
        name: Case(x, weight, k, run.random((tokens, k)))
        for name, k in ((USUAL, top_k), (ONE, 1), (SOLE, experts))
    }


def _large(run: Run) -> dict[str, Case]:
    """Logits in the thousands, in float64."""
    x, weight = run.random((9, 4)), run.random((6, 4))
    top = (x @ weight.T).amax(-1, keepdim=True)
    return {"large logits": Case(x * 2000 / top.abs(), weight, 2, run.random((9, 2)))}


def _mixed(run: Run, token: torch.dtype, matrix: torch.dtype) -> dict[str, Case]:
    """Logits nearer to each other than bf16 can tell."""
    x, row = run.random((60, 8)).to(token), run.random((1, 8))
    weight = (row + 1e-2 * run.random((6, 8))).to(matrix)
    gaps = (x.double() @ weight.double().T).sort(-1).values.diff(dim=-1)
    x = x[gaps.amin(-1) > 1e-4]  # float32's own rounding must not choose
    name = f"a {str(token)[6:]} token, a {str(matrix)[6:]} matrix"
    return {name: Case(x, weight, 2, run.random((len(x), 2)))}


def _wide(case: Case) -> torch.dtype:
    """What the router computes in."""
    both = torch.promote_types(case.x.dtype, case.weight.dtype)
    return torch.promote_types(both, torch.float32)


def _none(run: Run) -> dict[str, Case]:
    """No tokens."""
    return {
        f"no tokens, k = {k}": Case(
            torch.zeros(0, 4).double(), run.random((5, 4)), k, torch.zeros(0, k).double()
        )
        for k in (2, 1)
    }


def _tied(run: Run) -> dict[str, Case]:
    """Tokens of zeros among others: all their scores are equal. Twin experts. A single token."""
    x, weight = run.random((8, 4)), run.random((6, 4))
    return {
        "tokens of zeros": Case(x.mul(x[:, :1] > 0), weight, 3, run.random((8, 3))),
        "a single token": Case(x[1:2], weight, 3, run.random((1, 3))),
        "experts with equal rows": Case(x, weight[[0, 1, 2, 0, 1, 2]], 2, run.random((8, 2))),
    }


def _each(run: Run, cases: dict[str, Case]) -> Iterator[tuple[str, Case, dict[str, Any], Routed]]:
    """Each case with what was found, and what is right in float64."""
    result = run(drive, {"cases": {name: case._asdict() for name, case in cases.items()}})
    for name, case in cases.items():
        found = result.outputs[0][name]
        run.true(found["kept"], f"the token or the matrix was changed ({name})")
        yield name, case, found, routed(case.x.double(), case.weight.double(), case.top_k)


def _choices(run: Run, cases: dict[str, Case], terms: int = 4) -> None:
    """Experts and weights."""
    for name, case, found, right in _each(run, cases):
        likely = {
            "the order is wrong: best first": right.chosen.flip(-1),
            "the lowest scores were chosen": routed(
                -case.x.double(), case.weight.double(), case.top_k
            ).chosen,
        }
        run.close(found["chosen"], right.chosen, f"chosen ({name})", likely=likely)
        likely = wrong_weights(case, right)
        what = f"weights ({name})"
        run.close(found["weights"], right.weights.to(_wide(case)), what, terms=terms, likely=likely)


@check("the k best experts of each token, and weights that add up to 1", points=4, code="E")
@diagnosis("softmax over all E, the k highest, divided by their sum")
def check_choices(run: Run) -> None:
    """E: in float64, k between 1 and E, and k = E."""
    _choices(run, {name: case for name, case in _usual(run).items() if name != ONE})


@check("k = 1: the weight is the score itself", points=2, code="E")
@diagnosis("divide by the sum only if k > 1")
def check_one(run: Run) -> None:
    """E: its gradient would be lost if it were always 1."""
    _choices(run, {ONE: _usual(run)[ONE]})


@check("the load-balancing loss", points=3, code="E")
@diagnosis("E · Σ f·P: f is the share of choices, P the mean score")
def check_balance(run: Run) -> None:
    """E: the value, for three k."""
    for name, case, found, right in _each(run, _usual(run)):
        likely = wrong_balance(case, right)
        run.close(found["balance"], right.balance, f"balance ({name})", likely=likely)


@check("the z-loss, also of large logits", points=3, code="E")
@diagnosis("the mean over tokens of logsumexp(logits)²")
def check_z(run: Run) -> None:
    """E: the value; exp of the large ones is infinite."""
    for name, _, found, right in _each(run, _usual(run) | _large(run)):
        run.close(
            found["z"],
            right.z,
            f"z ({name})",
            likely=wrong_z(right)
            | {
                "exp(1000) overflows: logits.logsumexp(-1) does not": torch.tensor(
                    torch.inf
                ).double()
            },
        )


@check("gradients of weights and losses, to tokens and matrix", points=4, code="E")
@diagnosis("only counts and choices have no gradient")
def check_gradients(run: Run) -> None:
    """E: three k; of the weights, of balance and of z, one by one."""
    for name, case, found, _ in _each(run, _usual(run)):
        if name == SOLE:  # f is the same for all experts, and so is the gradient: 0 up to rounding
            continue
        leaves = {key: getattr(case, key).clone().requires_grad_() for key in ("x", "weight")}
        right = routed(leaves["x"], leaves["weight"], case.top_k)
        wanted = gradients(right._asdict(), leaves, case.given)
        mean = right.scores.mean(0)
        share = counted(right.chosen, len(case.weight)) / right.chosen.numel()
        soft = balanced(share + mean - mean.detach(), right.scores)
        twice = gradients({"weights": None, "balance": soft, "z": None}, leaves, case.given)
        for part in PARTS:
            got = found["gradients"][part]
            run.true(got is not None, f"no gradient flows through {part} ({name})")
            for key, gradient in (wanted[part] or {}).items():
                likely = {"f has a gradient: it is a count": (twice[part] or {}).get(key)}
                what = f"the gradient of {part} for {key} ({name})"
                run.close(got[key], gradient, what, terms=len(case.x), likely=likely)


@check("routed in float32, or in float64 if token or matrix has it", points=2, code="E")
@diagnosis("convert token and matrix to the wider dtype before they are multiplied")
def check_dtype(run: Run) -> None:
    """E: logits that bf16 cannot tell apart; token and matrix in four pairs of dtypes."""
    half, single, double = torch.bfloat16, torch.float32, torch.float64
    for dtypes in ((half, single), (half, half), (half, double), (double, single)):
        cases = _mixed(run, *dtypes)
        _choices(run, cases, terms=200)
        for name, case, found, right in _each(run, cases):
            for part in ("balance", "z"):
                value = getattr(right, part).to(_wide(case))
                run.close(found[part], value, f"{part} ({name})", terms=200)


@check("equal scores, and no tokens at all", points=2, code="E")
@diagnosis("choose k different experts whatever the scores; divide by max(1, T)")
def check_edges(run: Run) -> None:
    """E: ties; T = 0, where both losses are 0 and their gradients zeros."""
    _ties(run)
    for name, _, found, right in _each(run, _none(run)):
        for part in PARTS:
            likely = {"0/0: divide by max(1, T)": torch.tensor(torch.nan).double()}
            run.close(found[part], getattr(right, part), f"{part} ({name})", likely=likely)
            got = (found["gradients"][part] or {}).get("weight")
            run.true(
                got is not None and not bool(got.any()),
                f"the gradient of {part} for weight is not zeros ({name})",
                cause="0/0, or a constant: the zeros must come from the graph",
            )


def _ties(run: Run) -> None:
    """Any k of the best are right, but they must be k."""
    for name, case, found, right in _each(run, _tied(run)):
        chosen = found["chosen"] if isinstance(found["chosen"], torch.Tensor) else torch.empty(0)
        likely = wrong_weights(case, right)
        run.close(found["weights"], right.weights, f"weights ({name})", likely=likely)
        run.close(chosen * 0, right.chosen * 0, f"0 · chosen ({name})")
        known = set(range(len(case.weight)))
        distinct = all(len(known & set(row)) == case.top_k for row in chosen.tolist())
        cause = "equal scores: k different experts are needed"
        run.true(distinct, f"an expert is chosen twice by one token ({name})", cause=cause)
        scores, best = (right.scores.gather(-1, kept) for kept in (chosen, right.chosen))
        run.close(scores, best, f"the scores of the chosen experts ({name})")
        share = counted(chosen, len(known)) / chosen.numel()
        run.close(found["balance"], balanced(share, right.scores), f"balance ({name})")
