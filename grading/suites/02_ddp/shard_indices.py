"""shard_indices: each example once, equal shares, another order in each epoch."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy
import torch

from course_lib.comm import all_reduce
from course_lib.grade.suite import Exercise, Run, because, check, diagnosis

EXERCISE = Exercise(
    title="Which examples are mine?",
    core=True,
    minutes=15,
    order=1,
    library=(),
    own=("torch.utils.data.DistributedSampler",),
    hints=(
        "Every rank makes the same shuffled list of *all* examples and takes its own part of it. "
        "What may the shuffle depend on, so that the ranks agree, but two epochs differ? And what "
        "must it not depend on?",
        "`torch.randperm(n, generator=...)` with a generator of your own leaves the global random "
        "state alone. Its seed is one number made of `seed` and `epoch`: with their product, epoch "
        "0 has the same order for every seed. For the rest, first work out how many examples each "
        "rank gets: n // world, or that rounded up.",
        "Make the order as long as `each * world`: cut it, or repeat it (`order.repeat(world)` is "
        "long enough for any n) and cut that. Then `[rank::world]` is the share. "
        "`-(-n // world)` rounds up.",
    ),
)

RANKS = 3  # real ones; each answers for every third of the ranks that are asked for
EPOCHS = (0, 1, 2, 3)
APART = (100, 1000, 1 << 8, 1 << 16, 1 << 20)  # seeds of which no part may be cut off
FEW = ((2, 5), (3, 8), (1, 3))  # examples, ranks
OWN_SHUFFLE = (
    "each rank shuffles in its own way: does the seed depend on the rank, or is it the global "
    "generator, or the `hash` of a text, which differ on every rank?"
)
UNEQUAL = (
    "The ranks have unequal numbers of examples: the one with more waits in an all-reduce that "
    "nobody else calls."
)
Case = tuple[int, int, int, int, bool]  # n, world, epoch, seed, drop_last


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(learner: Any, group: Any, cases: list[Case]) -> dict[str, Any]:
    """Asks for the shares of the ranks that this one answers for."""
    shares = []
    before = _random_states()
    for n, world, epoch, seed, drop_last in cases:
        mine = range(group.index, world, group.size)
        answers = [learner.shard_indices(n, r, world, epoch, seed, drop_last) for r in mine]
        shares.append(answers)
    return {"shares": shares, "same": _random_states() == before}


def _random_states() -> list[Any]:
    """Those of torch, Python and NumPy."""
    numpys: Any = numpy.random.get_state()
    return [torch.get_rng_state().tolist(), random.getstate(), numpys[1].tolist(), numpys[2:]]


def drive_steps(learner: Any, group: Any, n: int) -> dict[str, Any]:
    """Makes one all-reduce for each example, as a training loop does."""
    steps = []
    for drop_last in (False, True):
        share = learner.shard_indices(n, group.index, group.size, 0, 0, drop_last)
        for _ in share:
            all_reduce(torch.ones(1), group)
        steps.append(len(share))
    return {"steps": steps}


# --- what they must bring back -------------------------------------------------------------------
class Asked:
    """All cases and the shares that came back for them.

    Args:
        run: of the check.

    Attributes:
        even: a number of examples that 1, 2, 3 and 4 divide.
        odd: one that none of 2, 3, 4 divides.
        seed: a hidden one.
        same: for each rank, whether the random state was the same afterwards.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self.even = 12 * run.number(8, 20)
        self.odd, self.seed = self.even + 7, run.number(100, 10_000)
        n, odd, seed = self.even, self.odd, self.seed
        cases: list[Case] = [(n, world, 1, seed, False) for world in (1, 2, 3, 4)]
        cases += [(odd, world, 1, seed, drop) for world in (2, 3, 4) for drop in (False, True)]
        cases += [(few, world, 2, seed, drop) for few, world in FEW for drop in (False, True)]
        cases += [
            (n, world, epoch, s, False) for world in (1, 3) for epoch in EPOCHS for s in (0, seed)
        ]
        cases += [(n, 1, epoch, seed + apart, False) for epoch in EPOCHS for apart in APART]
        cases += [(odd, 4, epoch, 0, True) for epoch in EPOCHS]
        cases += [(odd, 3, epoch, s, drop) for epoch in EPOCHS for s in (0, seed)
                  for drop in (False, True)]  # fmt: skip
        cases = list(dict.fromkeys(cases))
        result = run(drive, {"cases": cases}, world=RANKS)
        self.same = result.column("same")
        self._shares = {
            case: [
                result.outputs[rank % RANKS]["shares"][place][rank // RANKS]
                for rank in range(case[1])
            ]
            for place, case in enumerate(cases)
        }

    def shares(
        self, n: int, world: int, epoch: int, seed: int, drop_last: bool = False
    ) -> list[list[int]]:
        """Each rank's share; fails if it is no int64 tensor of examples."""
        found = []
        for rank, share in enumerate(self._shares[n, world, epoch, seed, drop_last]):
            fits = (
                isinstance(share, torch.Tensor) and share.dim() == 1 and share.dtype == torch.int64
            )
            what = f"the share of rank {rank} of {world} in {n} examples"
            self._run.true(
                fits, f"{what} is not an int64 tensor of one dimension", measured=repr(share)[:100]
            )
            outside = [i for i in share.tolist() if not 0 <= i < n]
            self._run.true(
                not outside,
                f"{what} has numbers that are not examples",
                expected=f"0 to {n - 1}",
                measured=str(outside[:5]),
            )
            found.append(share.tolist())
        return found

    def orders(self, world: int, seed: int) -> list[list[int]]:
        """The share of rank 0 in each epoch."""
        return [self.shares(self.even, world, epoch, seed)[0] for epoch in EPOCHS]


def why_shared(shares: Sequence[Sequence[int]]) -> str:
    """Why two ranks have the same examples: in the same order they are cut from one list."""
    for place, first in enumerate(shares):
        for second in shares[place + 1 :]:
            both = set(first) & set(second)
            orders = [[i for i in share if i in both] for share in (first, second)]
            if len(both) > 4 and orders[0] != orders[1]:
                return OWN_SHUFFLE
            if set(first) == set(second):
                return "every rank has the same examples: each must take its own part of the order"
    return "the parts that the ranks cut from the order overlap"


def _title(n: int, world: int, drop_last: bool) -> str:
    return f"{n} examples on {world} ranks" + (", drop_last" if drop_last else "")


def _check_lengths(run: Run, shares: list[list[int]], each: int, title: str) -> None:
    """All ranks have `each` examples, none of them twice unless a rank has more than there are."""
    lengths = [len(share) for share in shares]
    run.true(
        len(set(lengths)) == 1,
        f"{title}: unequal shares",
        expected=f"{each} on every rank",
        measured=str(lengths),
        cause="all ranks must make the same number of steps",
    )
    run.equal(lengths[0], each, f"{title}: the length of a share")


@check("every example is in exactly one share", points=3, code="E")
@diagnosis("all ranks shuffle all examples in the same way, and each takes its own part")
def check_cover(run: Run) -> None:
    """E: sizes that divide, on 1–4 ranks."""
    asked = Asked(run)
    for world in (1, 2, 3, 4):
        shares = asked.shares(asked.even, world, 1, asked.seed)
        title = _title(asked.even, world, False)
        seen = [example for share in shares for example in share]
        twice = len(seen) - len(set(seen))
        within = len(set(shares[0])) < len(shares[0])
        run.true(
            not twice,
            f"{title}: {twice} examples are seen twice",
            measured=f"rank 0 sees {shares[0][:5]}, ...",
            cause="one rank sees an example twice" if within else why_shared(shares),
        )
        missing = asked.even - len(set(seen))
        run.true(not missing, f"{title}: {missing} examples are seen by no rank")
        _check_lengths(run, shares, asked.even // world, title)


@check("equal shares where the ranks do not divide the examples", points=2, code="E")
@diagnosis("make the order as long as world times n / world rounded up (or down), then cut it")
def check_rest(run: Run) -> None:
    """E: with and without drop_last; also fewer examples than ranks."""
    asked = Asked(run)
    sizes = [(asked.odd, world, 1) for world in (2, 3, 4)] + [(n, world, 2) for n, world in FEW]
    for n, world, epoch in sizes:
        for drop_last in (False, True):
            shares = asked.shares(n, world, epoch, asked.seed, drop_last)
            title = _title(n, world, drop_last)
            _check_lengths(run, shares, n // world if drop_last else -(-n // world), title)
            counts = [sum(share.count(example) for share in shares) for example in range(n)]
            if drop_last:
                run.true(
                    max(counts) <= 1,
                    f"{title}: an example is seen {max(counts)} times",
                    cause="with drop_last nothing is repeated",
                )
                continue
            run.true(
                max(counts) - min(counts) <= 1,
                f"{title}: one example is seen {max(counts)} times, another one {min(counts)} "
                "times",
                expected="no more than one time more often",
                cause="repeat the order from its beginning, not one example again and again",
            )


@check("a different order in each epoch and for each seed", points=3, code="E")
@diagnosis("the generator's seed must depend on both `seed` and `epoch`")
def check_epochs(run: Run) -> None:
    """E: also for seed 0; the ranks' shares are of other examples each time."""
    asked = Asked(run)
    for seed in (asked.seed, 0):
        orders = asked.orders(1, seed)
        run.true(
            orders[0] != sorted(orders[0]),
            f"seed {seed}: the examples are not shuffled",
            measured=str(orders[0][:5]),
        )
        run.true(
            _in_a_row(orders[0]) < asked.even // 4,
            f"seed {seed}: most examples follow the one before them in the data",
            measured=f"{orders[0][:5]}, ...",
            cause="a shifted or reversed order is not a shuffle: use torch.randperm",
        )
        same = [e for e in EPOCHS[1:] if orders[e] == orders[e - 1]]
        product = "the epoch is multiplied by the seed, and 0 times anything is 0"
        run.true(
            not same,
            f"seed {seed}: two epochs have the same order",
            expected="a different order in each epoch",
            measured=f"epochs {same[0] - 1} and {same[0]} are equal" if same else "",
            cause=product if seed == 0 else "the epoch is not in the seed (the `set_epoch` bug)",
        )
        again = len(_neighbours(orders[0]) & _neighbours(orders[1]))
        run.true(
            again < asked.even // 4,
            f"seed {seed}: most examples have the same neighbours in epochs 0 and 1",
            cause="one shuffled order that is shifted or reversed is not shuffled anew",
        )
        _check_odd_epochs(run, asked, seed)
    first = asked.orders(1, asked.seed)
    for apart in APART:
        second = asked.orders(1, asked.seed + apart)
        same = [epoch for epoch in EPOCHS if first[epoch] == second[epoch]]
        cause = "the seed is not used, or only a part of it"
        run.true(
            not same,
            f"two seeds give the same order in epoch {same[0] if same else ''}",
            expected="a different order for each seed",
            measured=f"seeds {asked.seed} and {asked.seed + apart} are equal",
            cause=cause if len(same) > 1 else "the epoch is multiplied by the seed",
        )
    members = {tuple(sorted(share)) for share in asked.orders(3, asked.seed)}
    cause = "shuffle all examples and then cut, instead of shuffling each share"
    run.true(len(members) > 1, "rank 0 of 3 sees the same examples in every epoch", cause=cause)


def _in_a_row(order: list[int]) -> int:
    """How many examples come right after their neighbour in the data, in either direction."""
    return sum(abs(a - b) == 1 for a, b in zip(order, order[1:], strict=False))


def _neighbours(order: list[int]) -> set[frozenset[int]]:
    """The pairs of examples that come right after each other."""
    return {frozenset(pair) for pair in zip(order, order[1:], strict=False)}


def _check_odd_epochs(run: Run, asked: Asked, seed: int) -> None:
    """Another order in each epoch also where the ranks do not divide the examples."""
    for drop in (False, True):
        orders = [asked.shares(asked.odd, 3, epoch, seed, drop)[0] for epoch in EPOCHS]
        run.true(
            all(orders[e] != orders[e - 1] for e in EPOCHS[1:]),
            f"{_title(asked.odd, 3, drop)}, seed {seed}: two epochs have the same order",
            cause="the epoch is in the seed only where the ranks divide the examples"
            if not drop
            else "the epoch is in the seed only without drop_last",
        )


@check("drop_last drops different examples in each epoch", points=1, code="E")
@diagnosis("shuffle first, and cut off the rest of the shuffled order")
def check_dropped(run: Run) -> None:
    """E: four epochs on four ranks."""
    asked = Asked(run)
    seen = {
        i for epoch in EPOCHS for share in asked.shares(asked.odd, 4, epoch, 0, True) for i in share
    }
    never = sorted(set(range(asked.odd)) - seen)
    run.true(
        not never,
        f"{len(never)} examples are seen in none of {len(EPOCHS)} epochs",
        measured=f"examples {never[:5]}",
        cause="the rest is cut off before the shuffle, so it is always the same",
    )


@check("the global random state is not changed", points=1, code="E")
@diagnosis("draw from a generator of your own: torch.Generator().manual_seed(...)")
def check_state(run: Run) -> None:
    """E: torch's, Python's and NumPy's."""
    for rank, same in enumerate(Asked(run).same):
        run.true(
            same,
            "the global random state was changed",
            rank=rank,
            cause="after torch.manual_seed every rank draws the same dropout, and the same "
            "again in each epoch",
        )


@check("an epoch with one all-reduce per step ends on every rank", points=2, code="H")
@diagnosis("the shares must be equally long")
def check_steps(run: Run) -> None:
    """H: three real ranks, a number of examples that 3 does not divide."""
    n = 3 * run.number(3, 6) + 1
    with because(deadlock="{} " + UNEQUAL):
        result = run(drive_steps, {"n": n}, world=RANKS)
    for steps in run.each(result.column("steps")):
        run.equal(steps, [n // RANKS + 1, n // RANKS], "steps without and with drop_last")
