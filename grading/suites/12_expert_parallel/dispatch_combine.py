"""dispatch_combine: tokens at their experts, and weighted sums at home."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from course_lib.comm import Mesh
from course_lib.grade.suite import Exercise, Run, because, check, diagnosis, in_part

EXERCISE = Exercise(
    title="Tokens to their experts and back: two uneven all-to-alls",
    core=True,
    minutes=50,
    order=2,
    defines=("dispatch", "combine"),
    hints=(
        "Sort the choices by expert: `order = chosen_TK.flatten().argsort()`, and choice c is of "
        "token `c // k`. What must a rank know of the others' choices before it can say how many "
        "rows come? Send each rank the counts for its experts, in uneven parts of `sizes`.",
        "The rows that arrive have N parts, one for each sender, each sorted by expert. From the "
        "counts [N, own], compute the expert of each row: "
        "`arange(own).repeat(N).repeat_interleave(counts.flatten())`; its argsort brings the "
        "rows of one expert together. Keep both permutations in the route.",
        "combine, in reverse: `rows_RD[by_expert.argsort()]`, exchange_in_group with the two lists "
        "of sizes swapped, `[order.argsort()]`, view as [T, k, D], times `weights_TK[..., None]`, "
        "sum over dim 1. An inverse permutation is the argsort of the permutation.",
    ),
)

SHAPES = ((1, 1), (1, 3), (2, 2))  # groups, and ranks in each; in float32 if there are two
LEAVES = ("x", "weights", "a", "b")
NAMES = {"x": "tokens", "weights": "weights", "a": "experts' a", "b": "experts' b"}
Member = dict[str, Any]  # what one rank is given


# --- what runs on the ranks ----------------------------------------------------------------------
def expert(rows: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A small network: [R, D] to the same."""
    return torch.tanh(rows @ a) @ b


def drive_dispatch(learner: Any, group: Any, member: Member) -> dict[str, Any]:
    """One way only, without gradients."""
    taken = member["x"].t().contiguous().t(), member["chosen"].t().contiguous().t()
    sizes = list(member["sizes"])
    sent = learner.dispatch(*taken, sizes, group)
    rows, loads, _ = sent if isinstance(sent, (tuple, list)) and len(sent) == 3 else (sent, 0, 0)
    kept = all(torch.equal(t, member[key]) for t, key in zip(taken, ("x", "chosen"), strict=True))
    return {"rows": rows, "loads": loads, "kept": kept and sizes == list(member["sizes"])}


def drive(learner: Any, group: Any, groups: int, member: Member, again: bool) -> dict[str, Any]:
    """There, through the experts, back, and the backward of it all.

    With `again`, other tokens are dispatched before these come back.
    """
    ep = Mesh(group, {"dp": groups, "ep": group.size // groups})["ep"]
    leaves = {key: member[key].clone().requires_grad_() for key in LEAVES}
    rows, loads, route = learner.dispatch(leaves["x"], member["chosen"], list(member["sizes"]), ep)
    if [len(rows), len(loads)] != [sum(loads), len(leaves["a"])]:
        raise ValueError(f"{len(rows)} rows, but the loads are {loads}")
    if again:
        learner.dispatch(member["x"], member["chosen"].flip(0, 1), list(member["sizes"]), ep)
    parts = zip(rows.split(loads), leaves["a"], leaves["b"], strict=True)
    done = torch.cat([expert(part, a, b) for part, a, b in parts])
    y = learner.combine(done, route, leaves["weights"], ep)
    group.ledger.mark("backward")
    if isinstance(y, torch.Tensor) and y.requires_grad and y.shape == member["given"].shape:
        (y * member["given"]).sum().backward()
    return {"y": y, "gradients": {key: leaf.grad for key, leaf in leaves.items()}}


# --- one process ---------------------------------------------------------------------------------
def outputs(members: list[Member], index: int) -> torch.Tensor:
    """[T, k, D]: every expert computes every token of a member, and its choices are kept."""
    member = members[index]
    every = [
        expert(member["x"], a, b)
        for each in members
        for a, b in zip(each["a"], each["b"], strict=True)
    ]
    tokens = torch.arange(len(member["x"]))[:, None]
    return torch.stack(every)[member["chosen"], tokens]


def folded(out_TKD: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """The weighted sums."""
    return (out_TKD * weights[..., None]).sum(1)


def one_process(members: list[Member]) -> list[dict[str, Any]]:
    """What each member of a group should have: y, and the gradients of all members' losses."""
    members = [{**m, **{key: m[key].clone().requires_grad_() for key in LEAVES}} for m in members]
    sums = [folded(outputs(members, i), m["weights"]) for i, m in enumerate(members)]
    torch.stack(
        [(y * m["given"]).sum() for y, m in zip(sums, members, strict=True)]
    ).sum().backward()
    return [
        {"y": y.detach(), "gradients": {key: m[key].grad for key in LEAVES}}
        for y, m in zip(sums, members, strict=True)
    ]


def wrong_sums(members: list[Member], index: int) -> dict[str, torch.Tensor]:
    """Known mistakes, for one member."""
    out, weights = outputs(members, index), members[index]["weights"]
    order = members[index]["chosen"].flatten().argsort(stable=True)
    back, flat = order.argsort(), out.flatten(0, 1)
    moved = weights.flatten()[back].view_as(weights)
    return {
        "the weights were not applied": folded(out, torch.ones_like(weights)),
        "the weights were applied twice": folded(out, weights.square()),
        "weights were applied to the wrong tokens: the rows are ordered by expert, the weights "
        "by token": folded(out, moved),
        "the rows came home ordered by expert, and were not put back in the order of tokens":
            folded(flat[order].view_as(out), weights),
        "the permutation was applied twice instead of undone: its inverse is its argsort":
            folded(flat[order][order].view_as(out), weights),
        "only one choice of each token": out[:, 0] * weights[:, :1],
    }  # fmt: skip


# --- cases ---------------------------------------------------------------------------------------
def members_of(
    run: Run,
    sizes: list[int],
    counts: list[int],
    top_k: int,
    used: int = 0,
    dtype: torch.dtype = torch.float64,
) -> list[Member]:
    """What the ranks of one group are given.

    Args:
        run: draws.
        sizes: how many experts each has.
        counts: how many tokens each has.
        top_k: k.
        used: choose among as many experts, from the first on; all if 0.
        dtype: of tokens, weights and experts.
    """
    width, inner, experts = run.number(3, 7), run.number(3, 6), used or sum(sizes)
    members = []
    for own, tokens in zip(sizes, counts, strict=True):
        members.append(
            {
                "x": run.random((tokens, width), dtype),
                "chosen": run.random((tokens, experts)).argsort(-1)[:, :top_k].contiguous(),
                "weights": run.random((tokens, top_k), dtype).abs() + 0.1,
                "a": run.random((own, width, inner), dtype),
                "b": run.random((own, inner, width), dtype),
                "sizes": sizes,
                "given": run.random((tokens, width), dtype),
            }
        )
    return members


def _usual(run: Run, groups: int, size: int) -> list[list[Member]]:
    """For each group its members: hidden, unequal numbers of experts and of tokens."""
    found, dtype = [], torch.float64 if groups == 1 else torch.float32
    for _ in range(groups):
        sizes = [run.number(1, 4) + (size == 1) for _ in range(size)]
        counts = [run.number(5, 12) + 2 * index for index in range(size)]
        found.append(members_of(run, sizes, counts, min(size, 2) + (size == 3), dtype=dtype))
    return found


def _empty(run: Run) -> list[list[Member]]:
    """Ranks 1 and 3 have no tokens; nobody wants the experts of ranks 2 and 3, nor expert 1."""
    counts = [run.number(5, 9), 0, run.number(5, 9), 0]
    members = members_of(run, [3, 2, 2, 1], counts, 2, used=4)
    for member in members:
        member["chosen"] += (member["chosen"] > 0).long()  # 0, 2, 3, 4: never 1
    return [members]


def _ran(run: Run, drive: Callable[..., Any], inputs: list[dict[str, Any]]) -> Any:
    """A run; where rows do not fit, with the likely reason."""
    cause = (
        "the rows that come are not those that a rank expects: exchange the counts first, "
        "and let every rank call every exchange"
    )
    with because(mismatch=cause):
        return run(drive, inputs, world=len(inputs))


def _inputs(teams: list[list[Member]]) -> list[dict[str, Any]]:
    """Of all ranks; a second dispatch where no bytes are counted."""
    shape = len(teams), len(teams[0])
    same = {"groups": shape[0], "again": shape not in SHAPES[1:]}
    return [{**same, "member": member} for team in teams for member in team]


def _each(run: Run, teams: list[list[Member]]) -> Iterator[tuple[str, int, Any, list[Member], int]]:
    """A case's name, and for each rank what was found, its group's members and its index there."""
    groups, size = len(teams), len(teams[0])
    inputs = _inputs(teams)
    result = _ran(run, drive, inputs)
    name = f"{groups} groups of {size}" if groups > 1 else f"{size} ranks" if size > 1 else "alone"
    if inputs[0]["again"]:
        name += ", with another dispatch before combine: all that it needs is in the route"
    for rank, found in enumerate(run.each(result.outputs)):
        yield name, rank, found, teams[rank // size], rank % size


def _sums(run: Run, teams: list[list[Member]]) -> None:
    """The sums on every rank."""
    for name, _, found, team, index in _each(run, teams):
        likely = wrong_sums(team, index)
        what = f"y ({name})"
        run.close(found["y"], one_process(team)[index]["y"], what, likely=likely, terms=64)


def _gradients(run: Run, teams: list[list[Member]]) -> None:
    """Of every leaf on every rank."""
    for name, _, found, team, index in _each(run, teams):
        wanted = one_process(team)[index]["gradients"]
        for key in LEAVES:
            got, what = found["gradients"][key], f"the gradient of the {NAMES[key]} ({name})"
            run.true(
                got is not None,
                f"{what} is None",
                cause="all_to_all has no backward: send rows with exchange_in_group"
                if key != "weights"
                else "the weights were detached",
            )
            run.close(got, wanted[key], what, terms=64)


# --- checks --------------------------------------------------------------------------------------
@check("dispatch: each expert has the rows of the tokens that chose it", points=4, code="E")
@diagnosis("sort by expert, all-to-all, and sort by expert again")
@in_part
def check_dispatch(run: Run) -> None:
    """E: three ranks; loads, and the rows of each expert in any order."""
    (team,) = _usual(run, 1, 3)
    result = _ran(run, drive_dispatch, [{"member": member} for member in team])
    for rank, found in enumerate(run.each(result.outputs)):
        first = sum(team[0]["sizes"][:rank])
        wanted, others = (
            [torch.cat(parts) for parts in arriving(team, rank, wrong)] for wrong in (False, True)
        )
        by_sender = [torch.cat(parts) for parts in zip(*arriving(team, rank), strict=True)]
        mine = team[rank]["chosen"].flatten()
        counts = torch.bincount(mine, minlength=sum(team[0]["sizes"]))[first:][: len(wanted)]
        likely = {"this rank's own counts: all ranks have rows for its experts": counts.tolist()}
        run.equal(found["loads"], [len(rows) for rows in wanted], "loads", likely=likely)
        whole = torch.cat(wanted)
        rows = found["rows"]
        zeros = rows * 0 if isinstance(rows, torch.Tensor) else rows
        run.close(zeros, whole * 0, "rows (times 0, to begin with)")
        run.close(
            by_column(rows, found["loads"]),
            by_column(whole, found["loads"]),
            "rows, sorted within each expert,",
            likely={
                "the rows arrive ordered by sender: sort them by expert once more": by_column(
                    torch.cat(by_sender), found["loads"]
                ),
                "the wrong tokens were sent: choice c belongs to token c // k": by_column(
                    torch.cat(others), found["loads"]
                ),
            },
        )
        run.true(found["kept"], "the tokens, the choices or the sizes were changed")


def arriving(team: list[Member], index: int, wrong: bool = False) -> list[list[torch.Tensor]]:
    """For each expert of a member the rows from each sender; or those of tokens c % T, wrongly."""
    found, first = [], sum(team[0]["sizes"][:index])
    for number in range(first, first + team[0]["sizes"][index]):
        choices = [(m["chosen"].flatten() == number).nonzero()[:, 0] for m in team]
        found.append(
            [
                m["x"][c % len(m["x"]) if wrong else c // m["chosen"].shape[1]]
                for m, c in zip(team, choices, strict=True)
            ]
        )
    return found


def by_column(rows: torch.Tensor, loads: list[int]) -> torch.Tensor:
    """The rows of each expert, sorted by their first number."""
    return torch.cat([part[part[:, 0].argsort()] for part in rows.split(loads)])


@check("combine: the weighted sums of a dense loop over experts", points=5, code="E")
@diagnosis("undo both permutations, then weigh by token and choice")
def check_combine(run: Run) -> None:
    """E: on 1 and 3 ranks, and in two groups of 2 at once."""
    for groups, size in SHAPES:
        _sums(run, _usual(run, groups, size))


@check("gradients of tokens, weights and experts", points=4, code="E")
@diagnosis("whatever is sent forward must send its gradient back")
def check_gradients(run: Run) -> None:
    """E: before any step; an expert's are the sum over all ranks' tokens."""
    for groups, size in SHAPES:
        _gradients(run, _usual(run, groups, size))


@check(
    "a rank without tokens, one without rows, one without either, an expert without any",
    points=3,
    code="H",
)
@diagnosis("every rank calls every collective, even with nothing to send")
def check_empty(run: Run) -> None:
    """H, E: values and gradients too."""
    _sums(run, _empty(run))
    _gradients(run, _empty(run))


@check("bytes: rows there and back, forward and backward, and counts once", points=4, code="B")
@diagnosis("k rows for each token with D numbers each, and the counts of the others' experts")
def check_bytes(run: Run) -> None:
    """B: exact, from the ledger, for each rank; in float64 and in float32."""
    for groups, size in SHAPES[1:]:
        teams = _usual(run, groups, size)
        result = _ran(run, drive, _inputs(teams))
        flows = [flow(team, index) for team in teams for index in range(size)]
        likely = {
            "weights are sent too: they must stay at home": [
                bytes_sent(each) + each["item"] * (each["out"] + each["in"]) for each in flows
            ],
            "counts are gathered: a rank needs only those of its own experts": [
                bytes_sent(each) - 8 * each["others"] + 8 * each["gathered"] for each in flows
            ],
            "parts are padded to the longest": [
                8 * each["others"] + each["item"] * 4 * each["padded"] * each["width"]
                for each in flows
            ],
            "outputs are sent twice": [bytes_sent(each) + rows_sent(each) // 2 for each in flows],
            "rows are sent in float64: send them in their dtype": [
                bytes_sent(each) + rows_sent(each) for each in flows
            ],
        }
        run.bytes(result, [bytes_sent(each) for each in flows], likely=likely)
        for ledger in run.each(result.ledgers):
            found = [event.op for event in ledger.events if event.parent < 0]
            run.equal(found.count("all_to_all"), 5, "the number of all-to-alls, two in backward")


def flow(team: list[Member], index: int) -> dict[str, int]:
    """How many rows and counts a member sends and gets, those for itself left out."""
    sizes = team[0]["sizes"]
    home = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    going = torch.stack(
        [torch.bincount(home[m["chosen"]].flatten(), minlength=len(sizes)) for m in team]
    )
    own = int(going[index, index])
    return {
        "out": int(going[index].sum()) - own, "in": int(going[:, index].sum()) - own,
        "others": sum(sizes) - sizes[index], "gathered": (len(sizes) - 1) * sum(sizes),
        "padded": (len(sizes) - 1) * int(going.max()), "width": team[0]["x"].shape[1],
        "item": team[0]["x"].itemsize,
    }  # fmt: skip


def rows_sent(each: dict[str, int]) -> int:
    """Bytes of a member: rows out and outputs back, and the same for gradients."""
    return each["item"] * 2 * (each["out"] + each["in"]) * each["width"]


def bytes_sent(each: dict[str, int]) -> int:
    """Those, and the counts."""
    return 8 * each["others"] + rows_sent(each)
