"""RegionRng: equal or different numbers, streams that go on, an outside left alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import torch
from torch.nn.functional import dropout

from course_lib.grade.suite import Exercise, Run, check, diagnosis, in_part

EXERCISE = Exercise(
    title="Dropout that knows what is sharded",
    core=False,
    minutes=15,
    order=7,
    defines=("RegionRng",),
    hints=(
        "Keep two states, one for each stream, in a dict by the kind of region. Entering a region "
        "makes one of them the default generator's state. What has to be remembered before that, "
        "and what afterwards?",
        "In `region`: get the outside state, set the stream's, `yield`, store the stream's new "
        "state in the dict, set the outside one. What follows the `yield` belongs in a `finally`.",
        "For the initial states use your own generator: "
        "`torch.Generator().manual_seed(n).get_state()`. All n must be different; to keep them "
        "different from those of another `seed` as well, take seed·4096 (more than a group has "
        "ranks) for replicated, and 1 + group.index more for sharded.",
    ),
)

KINDS = ("replicated", "sharded")
PAIRS = [[0, 2], [1, 3]]  # groups in which index and rank differ
FAR = 1 << 19  # between two seeds: some 8192 times as far is 0 modulo 2^32
SHAPE = (40, 60)  # more than a stream that is only some steps ahead would skip


# --- what runs on the ranks ----------------------------------------------------------------------
def _draw() -> torch.Tensor:
    return torch.rand(SHAPE, dtype=torch.float64)


def drive(
    learner: Any, group: Any, seed: int, outside: int, parts: list[list[int]]
) -> dict[str, Any]:
    """Draws in regions, in two orders, with two seeds, round an exception, and outside."""
    if parts:
        group = group.split(parts, "tp")
    torch.manual_seed(outside)
    made = torch.get_rng_state()
    rng, other = (learner.RegionRng(each, group) for each in (seed, seed + 1))
    found: dict[str, Any] = {"made": torch.equal(made, torch.get_rng_state())}
    for kind in KINDS:
        found[kind] = []
        for _ in range(2):
            with rng.region(kind):
                found[kind].append(_draw())
    found["after regions"] = torch.equal(made, torch.get_rng_state())
    _mixed(learner.RegionRng(seed, group), found)
    far = learner.RegionRng(seed + FAR, group)
    for kind in KINDS:
        with far.region(kind):
            found[f"far {kind}"] = _draw()
        with other.region(kind):
            found[f"other {kind}"] = _draw()
            found[f"{kind} mask"] = dropout(torch.ones(8, 8), 0.5) == 0
    return found


def _mixed(rng: Any, found: dict[str, Any]) -> None:
    """The same draws, with the kinds in turn, draws outside, and an exception after the first."""
    found["mixed"] = {kind: [] for kind in KINDS}
    before = after = torch.get_rng_state()
    caught = 0
    for turn in range(2):
        for kind in reversed(KINDS):
            torch.rand(3)  # the outside moves on, and is to be left where it is then
            before = torch.get_rng_state()
            try:
                with rng.region(kind):
                    found["mixed"][kind].append(_draw())
                    if turn == 0:
                        raise FloatingPointError
            except FloatingPointError:
                caught += 1
            after = torch.get_rng_state()
            name = "after an exception" if turn == 0 else "after drawing outside"
            found[name] = found.get(name, True) and torch.equal(before, after)
            torch.set_rng_state(before)
    found["caught"] = caught


# --- what they must bring back -------------------------------------------------------------------
def _runs(run: Run) -> Iterator[tuple[str, list[list[int]], list[dict[str, Any]]]]:
    """For each run: its name, its groups, what the ranks found."""
    seed = run.number(0, 1000)
    runs: list[tuple[int, Sequence[list[int]]]] = [(1, ()), (2, ()), (3, ()), (4, ()), (4, PAIRS)]
    for world, parts in runs:
        inputs = [
            {"seed": seed, "outside": 10 + rank, "parts": list(parts)} for rank in range(world)
        ]
        result = run(drive, inputs, world=world)
        groups = list(parts) or [list(range(world))]
        yield f"({len(groups[0])} ranks)", groups, result.outputs


def _shared(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether two draws have a number in common; by chance that is one in 10^9."""
    return bool(torch.isin(first, second).any())


@check("replicated regions: the same numbers on all ranks", points=2, code="E")
@diagnosis("the replicated stream has one seed, the same on every rank")
def check_replicated(run: Run) -> None:
    """E: numbers and dropout masks, also in groups that are not the world."""
    for name, groups, outputs in _runs(run):
        for ranks in groups:
            first = outputs[ranks[0]]
            for rank in ranks:
                found = outputs[rank]
                run.equal(
                    found["replicated"],
                    first["replicated"],
                    rank=rank,
                    what=f"what two replicated regions draw {name}",
                )
                what = f"the dropout mask of a replicated region {name}"
                run.equal(found["replicated mask"], first["replicated mask"], what, rank=rank)


@check("sharded regions: different numbers on each rank", points=2, code="E")
@diagnosis("the seed of the sharded stream must depend on the rank's index")
def check_sharded(run: Run) -> None:
    """E: no number is drawn on two ranks, or in both kinds of region."""
    for name, groups, outputs in _runs(run):
        for ranks in groups:
            for one, two in combinations(ranks, 2):
                for here, there in ((0, 0), (0, 1), (1, 0)):
                    first, second = outputs[one]["sharded"][here], outputs[two]["sharded"][there]
                    run.true(
                        not _shared(first, second),
                        rank=two,
                        message=f"a sharded region "
                        f"draws the numbers that rank {one} draws in one {name}",
                    )
            for rank in ranks:
                both = [torch.cat(outputs[rank][kind]) for kind in KINDS]
                run.true(
                    not _shared(*both),
                    f"sharded and replicated draw the same {name}",
                    rank=rank,
                    cause="they need different seeds, on index 0 too",
                )


@check("the streams continue, and depend only on seed and index", points=2, code="E")
@diagnosis(
    "a region begins where the last of its kind ended, whatever was drawn elsewhere, also by "
    "another RegionRng"
)
@in_part
def check_streams(run: Run) -> None:
    """E: kinds one after the other and in turn; another seed; the same index in another group."""
    groups: list[list[int]] = []
    outputs: list[dict[str, Any]] = []
    before: dict[tuple[str, int], Any] = {}
    for name, groups, outputs in _runs(run):  # noqa: B007 - the last are needed below
        for rank, found in enumerate(outputs):
            for kind in KINDS:
                first, second = found[kind]
                run.true(
                    not torch.equal(first, second),
                    f"two {kind} regions draw the same {name}",
                    rank=rank,
                    cause="the stream starts over in each region: keep its state when the region "
                    "ends",
                )
                mixed = found["mixed"][kind]
                likely = {
                    "the stream started over after an exception: keep its state in `finally`": [
                        first,
                        first,
                    ]
                }
                what = f"what {kind} regions draw after draws elsewhere and an exception {name}"
                run.equal(mixed, found[kind], what, rank=rank, likely=likely)
                index = next(ranks.index(rank) for ranks in groups if rank in ranks)
                alone = before.setdefault((kind, index), found[kind])
                what = f"what {kind} regions draw at the same index of another group {name}"
                run.equal(found[kind], alone, what, rank=rank)
                other = found[f"other {kind}"]
                run.true(
                    not torch.equal(other, first),
                    f"another seed gives the same {kind} numbers {name}",
                    rank=rank,
                )
        for ranks in groups:
            own = [draw for rank in ranks for kind in KINDS for draw in outputs[rank][kind]]
            others = [outputs[rank][f"other {kind}"] for rank in ranks for kind in KINDS]
            run.true(
                not _shared(torch.cat(own), torch.cat(others)),
                f"two seeds, of which one is larger by 1, draw the same numbers {name}",
                rank=ranks[0],
                cause="one's sharded stream is a stream of the other, on another index or of the "
                "other kind: keep seeds further apart than there are streams",
            )
            far = [outputs[rank][f"far {kind}"] for rank in ranks for kind in KINDS]
            run.true(
                not _shared(torch.cat(own), torch.cat(far)),
                f"two seeds, of which one is larger by 2^19, draw the same numbers {name}",
                rank=ranks[0],
                cause="the seeds of streams count modulo 2^32, so they must stay below it",
            )
    for one, two in zip(*groups, strict=True):  # the last run's: the same indices in two groups
        for kind in KINDS:
            run.equal(
                outputs[two][kind],
                outputs[one][kind],
                f"what {kind} regions draw on "
                f"rank {two}, at the same index of another group as rank {one}",
                rank=two,
            )


@check("outside the regions, nothing changes", points=2, code="E")
@diagnosis("get the default generator's state when a region begins, set it when it ends")
def check_outside(run: Run) -> None:
    """E: the default generator's state after making one, after regions and after exceptions."""
    causes = {
        "made": "`torch.manual_seed` seeds the default generator: use your own",
        "after regions": "the default generator's state is not put back after the region",
        "after drawing outside": "the state that was put back is not the one from just before the "
        "region",
        "after an exception": "an exception skips what follows the `yield`: use `finally`",
    }
    for name, _, outputs in _runs(run):
        for rank, found in enumerate(outputs):
            for what, cause in causes.items():
                when = "after a RegionRng was made" if what == "made" else what
                run.true(
                    found[what],
                    f"the default generator is not where it was, {when} {name}",
                    rank=rank,
                    cause=cause,
                )
            run.equal(
                found["caught"],
                len(KINDS),
                "the number of exceptions that came out of the regions",
                rank=rank,
            )


@check("nothing is sent", points=1, code="B")
@diagnosis("every rank knows its seed and index already")
def check_calls(run: Run) -> None:
    """B: no call at all."""
    inputs = [{"seed": run.number(0, 1000), "outside": 10 + rank, "parts": []} for rank in range(2)]
    result = run(drive, inputs, world=2)
    for ledger in run.each(result.ledgers):
        run.equal([event.op for event in ledger.events], [], "the list of calls")
