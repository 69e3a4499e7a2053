"""ep_traffic: copies counted message by message, and a mean over all ways to choose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations
from typing import Any, NamedTuple

import torch

from course_lib.grade.suite import Exercise, Run, check, diagnosis

EXERCISE = Exercise(
    title="Bytes between nodes, if a token goes to each node once",
    core=False,
    minutes=25,
    order=7,
    defines=("ep_traffic", "nodes_reached"),
    library=(),
    hints=(
        "Take one token. Write down the ranks of its experts as a list (plain), as a set (no "
        "rank twice), and the set of their nodes. All four numbers follow from these.",
        "By node, copies between nodes: the set of nodes without the token's own. Copies inside: "
        "each rank of the set except the one that already has the token, which has the same "
        "place on every node, `source % per_node`.",
        "One of the M nodes, with e experts each, is missed with probability C(M·e - e, k) / "
        "C(M·e, k). Sum the probability that it is not missed over the M nodes, and multiply by "
        "(n-1)/n, because one of the n nodes is the token's own.",
    ),
)

Counts = tuple[int, int]  # inside a node, between nodes
Message = tuple[int, int]  # from rank, to rank


class Case(NamedTuple):
    """One routing."""

    chosen: torch.Tensor  # [N, T, k]
    experts: int
    per_node: int
    token_bytes: int


# --- what runs on the rank -----------------------------------------------------------------------
def drive(learner: Any, group: Any, cases: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Each routing; the choices' memory is transposed."""
    found = {}
    for name, case in cases.items():
        chosen = case["chosen"].transpose(0, 2).contiguous().transpose(0, 2)
        both = learner.ep_traffic(chosen, case["experts"], case["per_node"], case["token_bytes"])
        ways = both if isinstance(both, (tuple, list)) and len(both) == 2 else (both, both)
        found[name] = [list(way) if isinstance(way, (tuple, list)) else way for way in ways]
    return found


def drive_mean(learner: Any, group: Any, cases: list[list[int]]) -> list[Any]:
    """Each mean: as numerator and denominator if it is exact."""
    means = [learner.nodes_reached(*case) for case in cases]
    return [
        [int(mean.numerator), int(mean.denominator)]
        if isinstance(mean, (int, Fraction))
        else repr(mean)
        for mean in means
    ]


# --- by the rules --------------------------------------------------------------------------------
def hosts(case: Case) -> Iterator[tuple[int, list[int]]]:
    """Of each token its rank, and the rank of each choice that was not dropped."""
    own = case.experts // len(case.chosen)
    for source, tokens in enumerate(case.chosen.tolist()):
        for chosen in tokens:
            yield source, [expert // own for expert in chosen if expert < case.experts]


def plain(case: Case) -> list[Message]:
    """All messages, those of a rank to itself among them."""
    return [(source, rank) for source, ranks in hosts(case) for rank in ranks]


def to_each_rank(case: Case) -> list[Message]:
    """One message to each rank that has experts of a token."""
    return [(source, rank) for source, ranks in hosts(case) for rank in set(ranks)]


def by_node(case: Case, start: int | None = None, each: bool = False) -> list[Message]:
    """All messages, in two steps.

    Args:
        case: the routing.
        start: the place in a node where all tokens arrive; the same as at home if None.
        each: inside a node one for each choice, not for each rank.
    """
    per, sent = case.per_node, list[Message]()
    for source, ranks in hosts(case):
        for node in {rank // per for rank in ranks}:
            there = node * per + (source % per if start is None else start)
            there = source if node == source // per else there
            spread = ranks if each else set(ranks)
            sent += [(source, there), *((there, r) for r in spread if r // per == node)]
    return sent


def count(case: Case, sent: list[Message]) -> Counts:
    """Bytes inside a node and between nodes; what stays on a rank is not sent."""
    ways = Counter(a // case.per_node != b // case.per_node for a, b in sent if a != b)
    return ways[False] * case.token_bytes, ways[True] * case.token_bytes


def common_mistakes(case: Case, sent: list[Message]) -> dict[str, Counts]:
    """Known wrong counts of either way."""
    inside, between = count(case, sent)
    size, nodes = case.token_bytes, len(case.chosen) // case.per_node
    stays = sum(a == b for a, b in sent) * size
    cyclic = Counter(a % nodes != b % nodes for a, b in sent if a != b)
    return {
        "in copies, not in bytes": (inside // size, between // size),
        "a copy that stays on its rank is not sent": (inside + stays, between),
        "inside comes first, then between": (between, inside),
        "rank r is on node r // P": (cyclic[False] * size, cyclic[True] * size),
    }


def plain_mistakes(case: Case) -> dict[str, Counts]:
    """Known wrong counts of the plain way."""
    kept = case._replace(chosen=case.chosen.clamp(max=case.experts - 1))
    return {
        "a choice that was dropped is sent nowhere": count(kept, plain(kept)),
        "two experts on one rank are two copies, the plain way": count(case, to_each_rank(case)),
        "this is the way by node": count(case, by_node(case)),
        **common_mistakes(case, plain(case)),
    }


def node_mistakes(case: Case) -> dict[str, Counts]:
    """Known wrong counts of the way by node."""
    kept = case._replace(chosen=case.chosen.clamp(max=case.experts - 1))
    inside, between = count(case, by_node(case))
    near, far = count(case, to_each_rank(case))
    at_home = sum(
        source // case.per_node in {rank // case.per_node for rank in ranks}
        for source, ranks in hosts(case)
    )
    return {
        "a choice that was dropped is sent nowhere": count(kept, by_node(kept)),
        "a node gets one copy, however many of its ranks have experts of the token": (inside, far),
        "one copy for each rank, straight from the token's: send it to the node once": (near, far),
        "this is the plain way": count(case, plain(case)),
        "the copies inside the other nodes count too": (near, between),
        "the rank where a token arrives needs no copy from itself": (near + far, between),
        "a token arrives at its own place of the node, not at the node's first rank":
            count(case, by_node(case, start=0)),
        "a rank gets one copy inside its node, however many of its experts are chosen":
            count(case, by_node(case, each=True)),
        "the token's own node is not one of the other nodes":
            (inside, between + at_home * case.token_bytes),
        **common_mistakes(case, by_node(case)),
    }  # fmt: skip


def reached(nodes: int, experts: int, top_k: int, most: int) -> Fraction:
    """The mean over all sets of nodes and, in each, all sets of experts; the token is on node 0."""
    found, ways = 0, 0
    for drawn in combinations(range(nodes), most):
        pool = [node for node in drawn for _ in range(experts)]
        for chosen in combinations(pool, top_k):
            found, ways = found + len(set(chosen) - {0}), ways + 1
    return Fraction(found, ways)


def mean_mistakes(nodes: int, experts: int, top_k: int, most: int) -> dict[str, Fraction]:
    """Known wrong means."""
    others = Fraction(nodes - 1, nodes)
    any_node = reached(nodes, experts, top_k, most) / others if nodes > 1 else Fraction(1)
    return {
        "one of the n nodes is the token's own: it is not sent there": any_node,
        "experts are drawn only from the M nodes": reached(nodes, experts, top_k, nodes),
        "the k experts are different: they are drawn without replacement":
            most * (1 - Fraction(most - 1, most) ** top_k) * others,
        "some of the M nodes may have none of the k experts": min(most, top_k) * others,
        "this counts copies, not nodes: several experts may be on one node": top_k * others,
    }  # fmt: skip


def _pair(value: Fraction) -> list[int]:
    return [value.numerator, value.denominator]


# --- cases ---------------------------------------------------------------------------------------
def _routed(run: Run, nodes: int, per_node: int, own: int, top_k: int, tokens: int) -> Case:
    """A random routing; some choices are dropped."""
    ranks = nodes * per_node
    experts = ranks * own
    chosen = run.random((ranks, tokens, experts)).argsort(-1)[..., :top_k]
    late = run.random(chosen.shape) > 1.3
    return Case(chosen.masked_fill(late, experts), experts, per_node, run.number(100, 9000))


def _usual(run: Run) -> dict[str, Case]:
    """Two to three nodes, other sizes for everything."""
    shapes = [(2, 4, 3, 5, 4), (3, 2, 4, 6, 3), (2, 3, 1, 3, 5)]
    return {
        f"{nodes} nodes of {per} ranks, k = {top_k}": _routed(run, nodes, per, own, top_k, t)
        for nodes, per, own, top_k, t in shapes
    }


def _edges(run: Run) -> dict[str, Case]:
    """One node; one rank a node; no tokens; all dropped."""
    case = _routed(run, 2, 2, 2, 2, 3)
    return {
        "one node": _routed(run, 1, 4, 2, 3, 3),
        "a node for each rank": _routed(run, 4, 1, 2, 3, 3),
        "no tokens": case._replace(chosen=case.chosen[:, :0]),
        "all dropped": case._replace(chosen=torch.full_like(case.chosen, case.experts)),
    }


def _compare(run: Run, cases: dict[str, Case], way: int) -> None:
    """One way's bytes in all cases."""
    result = run(drive, {"cases": {name: case._asdict() for name, case in cases.items()}})
    said = ("the plain way", "by node")[way]
    for name, case in cases.items():
        right = count(case, (plain, by_node)[way](case))
        likely = (plain_mistakes, node_mistakes)[way](case)
        known = {why: list(wrong) for why, wrong in likely.items()}
        what = f"[inside, between] {said} ({name})"
        run.equal(result.outputs[0][name][way], list(right), what, likely=known)


# --- checks --------------------------------------------------------------------------------------
@check("bytes of the plain way", points=2, code="B")
@diagnosis("a copy for each choice, unless it stays on its rank")
def check_plain(run: Run) -> None:
    """B: message by message."""
    _compare(run, _usual(run), 0)


@check("bytes if a token is sent to each node once", points=4, code="B")
@diagnosis("use sets: the ranks with experts of a token, and their nodes")
def check_by_node(run: Run) -> None:
    """B: message by message."""
    _compare(run, _usual(run), 1)


@check("one node, one rank per node, no tokens, all dropped", points=2, code="B")
@diagnosis("one node sends nothing between nodes, and one rank per node nothing inside")
def check_edges(run: Run) -> None:
    """B: both ways."""
    for way in (0, 1):
        _compare(run, _edges(run), way)


@check("the mean number of nodes that a token reaches", points=3, code="E")
@diagnosis("M · (1 - C(M·e - e, k) / C(M·e, k)) · (n - 1) / n")
def check_mean(run: Run) -> None:
    """E: exact, over all sets of nodes and of experts."""
    cases = [[4, 2, 3, 2], [3, 3, 2, 3], [5, 2, 4, 3], [2, 4, 3, 1], [1, 4, 2, 1]]
    means = run(drive_mean, {"cases": cases}).outputs[0]
    for case, mean in zip(cases, means, strict=True):
        n, e, k, most = case
        what = f"the mean for n = {n}, e = {e}, k = {k}, M = {most}"
        cause = "return a Fraction; a quotient of integers is a float"
        run.true(isinstance(mean, list), f"{what} is not exact", measured=str(mean), cause=cause)
        likely = {why: _pair(wrong) for why, wrong in mean_mistakes(*case).items()}
        name = f"numerator and denominator of {what}"
        run.equal(mean, _pair(reached(*case)), name, likely=likely)
