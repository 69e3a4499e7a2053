"""zero_token_experts: one process's outputs and gradients, whoever has no token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from course_lib.grade.suite import Exercise, Run, check, diagnosis, in_part
from grading.references.data_parallel.training import explained

EXERCISE = Exercise(
    title="Experts without a token",
    core=True,
    minutes=25,
    order=3,
    defines=("moe_layer", "sum_gradients"),
    hints=(
        "Write the layer for the case in which every expert has tokens, without a single `if`. "
        "What does an indexing, a `split`, a linear layer or an exchange do with 0 rows? Try "
        "`nn.Linear(3, 3)(torch.zeros(0, 3)).sum().backward()`, and look at the gradients.",
        "`x_TD[route.order]` is what is sent. Sort the rows that come by `route.by_expert`, and "
        "`split` them by `route.loads`; each expert takes its part, even one without rows. The "
        "way back undoes all that in reverse: `torch.cat`, the inverse of `by_expert`, an "
        "exchange with `going` and `coming` swapped, the inverse of `order`. A permutation's "
        "inverse is its `argsort()`.",
        "`rows = exchange_in_group(x_TD[route.order], route.coming, route.going, group)`, and "
        "`exchange_in_group(done, route.going, route.coming, group)` at the end, both on every "
        "rank. In `sum_gradients`, for each parameter with `requires_grad`: zeros if `grad` is "
        "None, then `all_reduce(parameter.grad, group)`.",
    ),
)

Chosen = Sequence[Sequence[int]]  # by index, each token's expert

OWN, WORLD = 2, 3  # experts a rank, ranks
EVERYBODY = ([0, 3, 5, 1, 2, 4, 4], [5, 4, 3, 2, 1, 0], [1, 1, 3, 0, 5, 2, 4, 0])
EMPTY = ([0, 5, 3], [3, 2, 3, 0], [5, 2])  # experts 1 and 4
IDLE = ([4, 0, 5, 1], [1, 1, 4], [5, 0])  # those of index 1, experts 2 and 3
ALONE: Chosen = ([0, 1, 0], [], [])  # nothing travels
NOTHING: Chosen = ([], [2, 3, 5, 0], [4, 1])  # index 0 has none of its own
NOBODY: Chosen = ([], [], [])
FORWARD = "Every rank calls both exchanges in forward, even with no rows to send or to receive."
BACKWARD = (
    "The backward of the exchange hangs if a rank's part has no graph: run every expert, even on "
    "no rows."
)
IN_PLACE = "others may have the tensor, or its memory: sum in place"
SUMS = "A parameter without a gradient must take part with zeros: others wait for it."
Batches = Sequence[Chosen]
Values = dict[str, torch.Tensor]


# --- what runs on the ranks ----------------------------------------------------------------------
def expert_of(weights: Values, number: int) -> nn.Sequential:
    """Two linear layers; the last bias is frozen."""
    hidden, width = weights["first"].shape[1:]
    net = nn.Sequential(nn.Linear(width, hidden), nn.Tanh(), nn.Linear(hidden, width))
    net.to(weights["first"].dtype)
    names = ("first", "bias", "second", "frozen")
    for name, parameter in zip(names, net.parameters(), strict=True):
        parameter.data.copy_(weights[name][number])
        parameter.requires_grad_(name != "frozen")
    return net


def gradients(experts: Sequence[nn.Module]) -> list[list[torch.Tensor | None]]:
    """A copy of each parameter's gradient, or None."""
    return [
        [None if p.grad is None else p.grad.clone() for p in each.parameters()] for each in experts
    ]


def drive(
    learner: Any, group: Any, weights: Values, batches: list[Values], alone: bool
) -> dict[str, Any]:
    """Several batches; gradients are added up. With `alone`, rank 0 is a group of its own."""
    part = group.split([[0], list(range(1, group.size))], "part") if alone else group
    own = range(part.index * OWN, part.index * OWN + OWN)
    experts = [expert_of(weights, number) for number in own]
    found = []
    for batch in batches:
        x_TD = batch["x"].clone().t().contiguous().t().requires_grad_()  # not contiguous
        weight_T = batch["weight"].clone().requires_grad_()
        y_TD = learner.moe_layer(x_TD, batch["chosen"], weight_T, experts, part)
        said = {"y": y_TD, "graph": getattr(y_TD, "requires_grad", False)}
        if said["graph"]:
            (y_TD * batch["toward"]).sum().backward()
        found.append(
            {**said, "x": x_TD.grad, "weight": weight_T.grad, "experts": gradients(experts)}
        )
    return {"batches": found}


def drive_sums(
    learner: Any, group: Any, given: list[torch.Tensor | None], frozen: torch.Tensor
) -> dict[str, Any]:
    """Sums gradients, of which some ranks have none; two parameters are frozen, one late.

    Rank 0 is a group of its own. The memory of parameters and gradients is not in order.
    """
    part = group.split([[0], list(range(1, group.size))], "part")
    shapes = [gradient.shape for gradient in given if gradient is not None][:1] * len(given)
    parameters = [
        nn.Parameter(torch.ones(shape[::-1], dtype=torch.float64).t()) for shape in shapes
    ]
    for parameter, gradient in zip(parameters, given, strict=True):
        parameter.grad = None if gradient is None else gradient.t().contiguous().t()
    before = [parameter.grad for parameter in parameters]
    still, late = (nn.Parameter(frozen.clone(), requires_grad=False) for _ in range(2))
    late.grad = frozen.clone()
    learner.sum_gradients(iter([parameters[0], still, late, *parameters[1:]]), part)
    kept = [old is None or p.grad is old for p, old in zip(parameters, before, strict=True)]
    gradients = [p.grad for p in parameters]
    return {"gradients": gradients, "kept": kept, "frozen": still.grad, "late": late.grad}


# --- what they must bring back -------------------------------------------------------------------
class Case(NamedTuple):
    """One run: its batches, what came back, and what one process makes of them."""

    world: int
    inputs: list[dict[str, Any]]
    result: Any
    members: tuple[int, ...]  # global ranks


def _given(run: Run, batches: Batches, alone: bool, dtype: torch.dtype) -> list[dict[str, Any]]:
    """What each rank gets; with `alone`, rank 0 is added, whose group has no other member."""
    width, hidden, count = run.number(3, 7), run.number(4, 9), OWN * len(batches[0])
    sizes = {"first": (hidden, width), "bias": (hidden,), "second": (width, hidden),
             "frozen": (width,)}  # fmt: skip
    weights = {name: run.random((count, *shape), dtype) for name, shape in sizes.items()}
    everyone = [([0, 1] if alone else []), *range(len(batches[0]))]
    inputs = []
    for index in everyone if alone else everyone[1:]:
        mine = []
        for batch in batches:
            chosen = index if isinstance(index, list) else batch[index]
            shape = (len(chosen), width)
            mine.append(
                {
                    "x": run.random(shape, dtype),
                    "toward": run.random(shape, dtype),
                    "weight": run.random(len(chosen), dtype).abs() + 0.5,
                    "chosen": torch.tensor(chosen, dtype=torch.int64),
                }
            )
        inputs.append({"weights": weights, "batches": mine, "alone": alone})
    return inputs


def _case(
    run: Run, batches: Batches, alone: bool = False, dtype: torch.dtype = torch.float64
) -> Case:
    inputs = _given(run, batches, alone, dtype)
    world = len(inputs)
    result = explained(run, drive, inputs, world, f"{FORWARD} {BACKWARD}")
    return Case(world, inputs, result, tuple(range(int(alone), world)))


def one_process(inputs: list[dict[str, Any]], step: int) -> list[dict[str, torch.Tensor]]:
    """Of each member: its outputs, and the gradients of its tokens and weights, in batch `step`."""
    found, weights = [], inputs[0]["weights"]
    for given in inputs:
        batch = given["batches"][step]
        x, weight = batch["x"].clone().requires_grad_(), batch["weight"].clone().requires_grad_()
        each = zip(x, batch["chosen"], weight, strict=True)
        rows = [expert_of(weights, int(chosen))(token) * factor for token, chosen, factor in each]
        y = torch.stack(rows) if rows else x * weight[:, None]
        (y * batch["toward"]).sum().backward()
        found.append({"y": y.detach(), "x": x.grad, "weight": weight.grad})
    return found


def expert_gradients(inputs: list[dict[str, Any]], step: int) -> list[nn.Sequential]:
    """All experts, with what all members' tokens of the batches up to `step` give."""
    weights = inputs[0]["weights"]
    experts = [expert_of(weights, number) for number in range(OWN * len(inputs))]
    for given in inputs:
        for batch in given["batches"][: step + 1]:
            rows = zip(batch["x"], batch["chosen"], batch["weight"], batch["toward"], strict=True)
            for token, number, factor, toward in rows:
                (experts[int(number)](token) * factor * toward).sum().backward()
    return experts


def _compare(run: Run, case: Case, what: str) -> None:
    """All batches of a case, on all members of its group."""
    inputs = [case.inputs[rank] for rank in case.members]
    for step in range(len(inputs[0]["batches"])):
        right, experts = one_process(inputs, step), expert_gradients(inputs, step)
        for index, rank in enumerate(case.members):
            words = f"({what}, batch {step + 1} on {len(inputs)} ranks)"
            found = case.result.outputs[rank]["batches"][step]
            _compare_tokens(run, found, right[index], rank, words)
            _compare_experts(run, found["experts"], experts, index * OWN, rank, words)


def _compare_tokens(run: Run, found: Any, right: Values, rank: int, words: str) -> None:
    """Outputs, and the gradients of what this rank gave."""
    run.close(found["y"], right["y"], f"the output {words}", rank=rank, terms=64)
    run.true(found["graph"], f"the output {words} has no graph", rank=rank, cause=BACKWARD)
    for name, thing in (("x", "tokens"), ("weight", "weights")):
        said = f"the gradient of the {thing} {words}"
        cause = "no gradient flows through: send rows with exchange_in_group"
        run.true(found[name] is not None, f"{said} is None", rank=rank, cause=cause)
        run.close(found[name], right[name], said, rank=rank, terms=64)


def _compare_experts(
    run: Run, found: Any, experts: Sequence[nn.Module], first: int, rank: int, words: str
) -> None:
    """The gradients of this rank's experts; None where frozen, zeros where no token came."""
    for number, mine in enumerate(found, first):
        for parameter, gradient in zip(experts[number].parameters(), mine, strict=True):
            name = f"a gradient of expert {number} {words}"
            if not parameter.requires_grad:
                run.true(gradient is None, f"{name}: a frozen parameter has one", rank=rank)
                continue
            right = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            cause = "no token came, and it was not run: run it on no rows"
            run.true(gradient is not None, f"{name} is None, not zeros", rank=rank, cause=cause)
            run.close(gradient, right, name, rank=rank, terms=64)


@check("tokens for every expert, and gradients that add up", points=2, code="E")
@diagnosis("on the way back, undo each step: cat, by_expert, exchange, order")
def check_everybody(run: Run) -> None:
    """E: float64, 3 ranks, and 3 ranks of 4; gradients of later batches are added."""
    _compare(run, _case(run, [EVERYBODY, EMPTY, EVERYBODY]), "every expert has tokens at first")
    _compare(run, _case(run, [EVERYBODY], alone=True), "a group inside the world")


@check("an expert without a token: zeros, not None", points=3, code="E")
@diagnosis("the gradient is zeros because the expert ran on no rows")
def check_empty(run: Run) -> None:
    """E: experts 1 and 4 have none, their neighbours on the same rank do."""
    _compare(run, _case(run, [EMPTY, EMPTY]), "experts 1 and 4 have no token")


@check("a rank whose experts have no token: no rank hangs", points=3, code="H")
@diagnosis("run every expert, even on no rows: an exchange needs a graph")
@in_part
def check_idle(run: Run) -> None:
    """H: forward and backward end, and gradients are zeros."""
    _compare(run, _case(run, [IDLE]), "the experts of a rank have no token")
    _compare(run, _case(run, [ALONE]), "only one rank has tokens, for its own experts")


@check("a rank that has no tokens; no rank has any", points=3, code="H")
@diagnosis("all members call the exchanges, whatever they have")
def check_nothing(run: Run) -> None:
    """H: T = 0 on one rank, then on all; in float32."""
    case = _case(run, [NOTHING, NOBODY], dtype=torch.float32)
    _compare(run, case, "a rank has no tokens of its own")


@check("sums of gradients that some ranks do not have", points=3, code="H")
@diagnosis("None takes part as zeros, and has the sum afterwards")
def check_sums(run: Run) -> None:
    """H: 2, 1, 0 and 3 of 3 ranks have a gradient, or 1 and 0 of one; frozen ones are left out."""
    have = ((1, 0, 0, 1), (1, 0, 0, 1), (1, 1, 0, 1), (0, 0, 0, 1))
    shape = (run.number(2, 6), 5)
    given = [[run.random(shape) if there else None for there in row] for row in have]
    inputs = [{"given": row, "frozen": run.random(4)} for row in given]
    result = explained(run, drive_sums, inputs, len(inputs), SUMS)
    for rank, found in enumerate(run.each(result.outputs)):
        members = given[1:] if rank else given[:1]
        for number, own in enumerate(given[rank]):
            there = [each for row in members if (each := row[number]) is not None]
            total = torch.stack(there).sum(0) if there else torch.zeros(shape, dtype=torch.float64)
            name = f"the sum of a gradient that {len(there)} of {len(members)} ranks have"
            gradient = found["gradients"][number]
            own = torch.zeros_like(total) if own is None else own
            run.true(gradient is not None, f"{name} is None", cause=SUMS)
            likely = {
                "this is the mean over the group: return the sum": total / len(members),
                "divided by the number of ranks that have one: return the sum": total
                / max(1, len(there)),
                "this is the rank's own gradient: it was left out, or a copy of it was summed": own,
            }
            run.close(gradient, total, name, likely=likely)
            run.true(found["kept"][number], f"{name} is another tensor", cause=IN_PLACE)
            run.true(found["frozen"] is None, "a frozen parameter has a gradient")
            late = "the gradient that a parameter had before it was frozen"
            run.close(found["late"], inputs[rank]["frozen"], late)


@check("every row is sent to its expert and back, and nothing else", points=3, code="B")
@diagnosis("send the counts, and only the rows that belong elsewhere")
def check_bytes(run: Run) -> None:
    """B: exact, from the ledger: two exchanges forward, two backward, and the counts of `plan`."""
    plans = ([EVERYBODY, EMPTY, EVERYBODY], torch.float64), ([NOTHING, NOBODY], torch.float32)
    for batches, dtype in plans:
        case = _case(run, batches, dtype=dtype)
        width = case.inputs[0]["batches"][0]["x"].shape[1]
        counts = len(batches) * 8 * OWN * (WORLD - 1)
        pairs = [
            (sender, number // OWN)
            for batch in batches
            for sender, row in enumerate(batch)
            for number in row
        ]
        out = [sum(s == rank != to for s, to in pairs) for rank in range(WORLD)]
        back = [sum(to == rank != s for s, to in pairs) for rank in range(WORLD)]
        row = width * dtype.itemsize
        twice = [2 * row * (o + b) for o, b in zip(out, back, strict=True)]
        likely = {
            "half of the rows: nothing is sent in backward": [counts + n // 2 for n in twice],
            "the counts are sent twice": [2 * counts + rows for rows in twice],
            "the rows are sent in a narrower dtype": [counts + rows // 2 for rows in twice],
            "the rows are sent in a wider dtype": [counts + rows * 2 for rows in twice],
        }
        run.bytes(case.result, [counts + rows for rows in twice], likely=likely)
        calls = 5 * len(batches)
        for ledger in run.each(case.result.ledgers):
            found = [event.op for event in ledger.events if event.parent < 0]
            run.equal(found.count("all_to_all"), calls, "the number of all-to-alls")
