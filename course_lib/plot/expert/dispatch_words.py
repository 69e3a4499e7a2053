"""The words under a dispatch: how many rows travel, how many wait for whom, and why in that order.

Paper: Lepikhin et al., "GShard" (2020), section 3; Fedus et al., "Switch Transformers" (2021).
"""

from __future__ import annotations

from collections.abc import Sequence

from course_lib.plot.expert.dispatch_rows import Routes
from course_lib.plot.player.style import format_bytes
from course_lib.plot.tensor.split_sums import many_of

TITLES = (
    "1. Tokens at home; the router has chosen their experts",
    "2. Permute: each rank sorts its rows by expert",
    "3. Counts first: who sends how many rows to whom",
    "4. All-to-all: every row is now on its expert's rank",
    "5. All experts compute; the slowest rank decides",
    "6. All-to-all back: results come as the rows left",
    "7. Inverse permutation: each token has its results",
    "8. Weighted sum: one output for each token",
)


def captions(routes: Routes) -> list[str]:
    """A caption for each frame."""
    return [
        _chosen(routes),
        _sorted(routes),
        _counts(routes),
        _there(routes),
        _work(routes),
        _back(routes),
        _home(routes),
        _summed(routes),
    ]


def describe(routes: Routes) -> str:
    """The whole story: all captions, and where the rows of each expert come from."""
    head = (
        f"{many(sum(routes.token_counts), 'token')} on {many(len(routes.ranks), 'rank')}, "
        f"{many(len(routes.experts), 'expert')}, drawn from the choices of a router."
    )
    experts = []
    for expert in routes.experts:
        from_whom = [
            f"{count} from rank {home}"
            for home in routes.ranks
            if (count := routes.count(home, expert))
        ]
        experts.append(
            f"expert {expert} on rank {routes.owner[expert]}: {', '.join(from_whom) or 'none'}"
        )
    return " ".join([head, *captions(routes), f"Rows: {'; '.join(experts)}."])


def many(count: int, thing: str) -> str:
    """`1 row`, `2 rows`."""
    return f"{count} {thing}{'' if count == 1 else 's'}"


def short(value: float) -> str:
    """Three digits at most."""
    return f"{value:.3g}"


def mean(values: Sequence[int]) -> float:
    """The mean."""
    return sum(values) / len(values)


def _chosen(routes: Routes) -> str:
    """How many tokens, experts and choices there are."""
    words = (
        f"{many(sum(routes.token_counts), 'token')} on {many(len(routes.ranks), 'rank')}; each "
        f"chose {routes.top_k} of {many(len(routes.experts), 'expert')}: "
        f"{many(len(routes.rows + routes.lost), 'choice')}. "
    )
    sizes = ", ".join(map(str, routes.sizes))
    if len(set(routes.sizes)) == 1:
        words += f"Every rank has {routes.sizes[0]} of the experts."
    else:
        words += f"Of the experts the ranks have {sizes}."
    if routes.lost:
        words += f" {len(routes.lost)} crossed out: dropped, their expert had no room."
    return words


def _sorted(routes: Routes) -> str:
    """Why rows are sorted."""
    words = (
        f"A row for each choice, {many(len(routes.rows), 'row')} in all. Sorted by expert, what "
        "goes to one rank lies together, and an all-to-all can send it in one piece."
    )
    return words + (f" {_dropped(routes)} not among them." if routes.lost else "")


def _dropped(routes: Routes) -> str:
    """`The 2 dropped choices are`."""
    return (
        "The dropped choice is"
        if len(routes.lost) == 1
        else (f"The {len(routes.lost)} dropped choices are")
    )


def _counts(routes: Routes) -> str:
    """What the counts are for and cost."""
    if len(routes.ranks) == 1:
        return f"One rank has all experts: it keeps its {many(len(routes.rows), 'row')}."
    others = [format_bytes(8 * (len(routes.experts) - size)) for size in routes.sizes]
    return (
        "No rank knows how many rows will come to it. So each rank sends every other rank the "
        f"counts for that rank's experts: {many_of(others)} per rank, at 8 bytes per count. The "
        f"columns' sums are the loads. Then {_moved(routes)}."
    )


def _moved(routes: Routes) -> str:
    """`18 of 24 rows go over the wire, 6 stay`."""
    stay = len(routes.rows) - routes.travelling
    return (
        f"{routes.travelling} of {many(len(routes.rows), 'row')} "
        f"go{'es' * (routes.travelling == 1)} over the wire, "
        f"{stay} stay{'s' * (stay == 1)}"
    )


def _there(routes: Routes) -> str:
    """How even the queues are."""
    loads = routes.loads
    idle = [expert for expert in routes.experts if not loads[expert]]
    words = (
        f"{_moved(routes)}. The longest queue has {many(max(loads), 'row')}, at "
        f"{_names(routes, max(loads))}; the mean is {short(mean(loads))}."
    )
    if idle:
        runs = "it runs" if len(idle) == 1 else "they run"
        words += (
            f" Without a row: {_names(routes, 0)}. Still {runs}, on no rows: gradients are zeros, "
            "not None."
        )
    return words


def _names(routes: Routes, load: int) -> str:
    """`expert 3`, `experts 1, 4`: those with that load."""
    found = [str(expert) for expert, count in enumerate(routes.loads) if count == load]
    return f"expert{'s' * (len(found) > 1)} {', '.join(found)}"


def _work(routes: Routes) -> str:
    """How even the ranks' work is."""
    work, even = routes.work, mean(routes.work)
    ratio = max(work) / even
    slow = [str(rank) for rank in routes.ranks if work[rank] == max(work)]
    words = (
        f"A rank has {short(even)} rows on average; rank{'s' * (len(slow) > 1)} "
        f"{', '.join(slow)} {'has' if len(slow) == 1 else 'have'} {max(work)}. "
        f"Load imbalance, max/mean: {short(ratio)}."
    )
    if ratio == 1:
        return words + " Nobody waits."
    return words + (
        f" All wait for the slowest: {short(100 - 100 / ratio)} % of the ranks' time is idle."
    )


def _back(routes: Routes) -> str:
    """What goes back."""
    return (
        f"Again {many(routes.travelling, 'row')} over the wire, {2 * routes.travelling} in both "
        "directions. Each rank knows the counts, and the results come in the order in which the "
        "rows left: by expert."
    )


def _home(routes: Routes) -> str:
    """What the inverse is."""
    results = [len(routes.rows), sum(routes.token_counts)]
    words = (
        f"The inverse of the permutation of step 2 assigns {many(results[0], 'result')} to "
        f"{many(results[1], 'token')}"
    )
    if not routes.lost:
        return words + f": {routes.top_k} each."
    bare = len(unheard(routes))
    return words + f". Without any, as all it chose was dropped: {many(bare, 'token')}."


def unheard(routes: Routes) -> set[tuple[int, int]]:
    """The tokens, as (home, number), all of whose choices were dropped."""
    lost = {(row.home, row.token) for row in routes.lost}
    return lost - {(row.home, row.token) for row in routes.rows}


def _summed(routes: Routes) -> str:
    """What is added up."""
    words = (
        "Each token adds up its results with the mixing weights w, which stayed on its own rank: "
        f"{many(len(routes.rows), 'result')}, {many(sum(routes.token_counts), 'output')}."
    )
    if unheard(routes):
        words += " Where all was dropped it is 0: the token goes on with the residual stream alone."
    return words
