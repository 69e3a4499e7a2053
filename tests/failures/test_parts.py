"""The parts of a training that survives: who decides, the mean, the state, the copies, the sum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from course_lib.comm import Group
from course_lib.failures import (
    Heartbeat,
    Limits,
    PeerCheckpoint,
    Policy,
    Span,
    give_state,
    goodput,
    masked_mean,
    quorum,
    random_faults,
    replay,
    take_state,
    young,
)
from course_lib.failures.peer import NEVER, Slot
from course_lib.trace import Refusal

Ranks = Callable[..., list[Any]]
LIMITS = Limits(silent=1.0, stuck=5.0)


def heard(**steps: int | None) -> dict[int, Heartbeat]:
    """`r3=7`: rank 3 was heard of at 10.0 and has seen 7 steps."""
    return {int(name[1:]): Heartbeat(10.0, 10.0, step) for name, step in steps.items()}


def test_a_quorum_is_of_those_who_are_alive_and_have_the_newest_weights() -> None:
    beats = heard(r3=7, r0=7, r1=6, r2=7, r9=8)
    beats[2] = Heartbeat(8.9, 8.9, 7)
    found = quorum([0, 1, 2, 3], beats, 10.0, LIMITS)
    assert found == (7, (0, 3), {1: 0, 9: 3}) and found.members == (0, 1, 3, 9)
    assert quorum([0, 1, 2, 3], beats, 10.0, LIMITS) == quorum(
        [3, 2, 1, 0], dict(reversed(beats.items())), 10.0, LIMITS
    )


def test_half_of_the_members_is_no_quorum_and_a_stuck_rank_is_no_member() -> None:
    assert quorum([0, 1, 2, 3], heard(r0=7, r1=7, r8=7), 10.0, LIMITS) is None
    beats = heard(r0=7, r1=7, r2=None)
    beats[1] = Heartbeat(10.0, 4.9, 7)
    assert quorum([0, 1, 2], beats, 10.0, LIMITS) == (7, (0,), {2: 0})
    assert quorum([0, 1], heard(r0=None, r1=None), 10.0, LIMITS) is None


def test_the_mean_is_over_those_who_took_part(ranks: Ranks) -> None:
    def job(group: Group) -> tuple[int, torch.Tensor, int, torch.Tensor]:
        mine = torch.full((2, 3), float(group.rank), dtype=torch.float64)
        if group.rank == 1:
            mine[0, 0] = torch.nan
        count = masked_mean(mine, group.rank != 1, group)
        nobodys = torch.ones(2)
        return count, mine, masked_mean(nobodys, False, group), nobodys

    for count, mean, none, zeros in ranks(job, 3):
        assert count == 2 and mean.eq(1.0).all() and none == 0 and zeros.eq(0.0).all()


def test_a_state_travels_whole_and_stays_what_it_was(ranks: Ranks) -> None:
    def job(group: Group) -> bool:
        torch.manual_seed(0)
        big = torch.randn(300_000, dtype=torch.float64)
        state = {"weights": [big.view(3, -1).t()], "step": 4, 7: (torch.get_rng_state(), 0.1)}
        if group.rank == 0:
            give_state(state, 2, group)
        if group.rank == 2:
            found = take_state(0, group)
            same = found["weights"][0].equal(state["weights"][0])
            return same and found["step"] == 4 and found[7][0].equal(state[7][0])
        return True

    assert all(ranks(job, 3))


def test_any_node_may_go_and_a_torn_save_is_not_used(ranks: Ranks) -> None:
    def job(group: Group) -> list[float]:
        shard = torch.full((5,), 10.0 + group.rank)
        kept = PeerCheckpoint(group, 2, shard)
        kept.save(1, shard)
        kept.save(2, shard + 100)
        if group.index < 2:  # the next save was under way, and had not ended everywhere
            place, torn = next((i, s) for i, s in enumerate(kept.slots) if s.step == 1)
            kept.slots[place] = Slot(NEVER, torn.own.fill_(-1.0), torn.kept)
        found = []
        for lost in ([2, 3], [0, 1]):
            shard.fill_(0)
            if group.index in lost:
                kept = PeerCheckpoint(group, 2, shard)
            found += [float(kept.restore(shard, lost)), shard[0].item()]
        try:
            kept.restore(shard, [1, 3])
        except Refusal:
            return found
        return []

    for rank, found in enumerate(ranks(job, 4)):
        assert found == [2.0, 110.0 + rank] * 2


def test_a_save_that_one_rank_alone_has_is_written_over(ranks: Ranks) -> None:
    """It is newer than what was gone back to: the next save must not be written over that."""

    def job(group: Group) -> list[float]:
        shard = torch.zeros(2)
        kept = PeerCheckpoint(group, 1, shard)
        kept.save(10, shard + 10)
        kept.save(20, shard + 20)

        def torn(step: int) -> None:
            kept.slots = [s._replace(step=NEVER) if s.step == step else s for s in kept.slots]

        if group.index:  # rank 0 alone has heard that all have it
            torn(20)
        found = [float(kept.restore(shard)), shard[0].item()]
        kept.save(15, shard + 5)
        kept.save(18, shard + 8)
        torn(18)
        return [*found, float(kept.restore(shard)), shard[0].item()]

    assert ranks(job, 3) == [[10.0, 10.0, 15.0, 15.0]] * 3


def test_a_save_goes_on_from_the_last_and_is_as_exact(ranks: Ranks) -> None:
    def job(group: Group) -> bool:
        kept = PeerCheckpoint(group, 1, torch.zeros(3, dtype=torch.bfloat16))
        kept.save(5, torch.ones(3, dtype=torch.bfloat16))
        for step, shard in (
            (4, torch.ones(3, dtype=torch.bfloat16)),  # it would not be gone back to
            (6, torch.ones(3)),  # and this would be rounded
            (6, torch.tensor(1.0, dtype=torch.bfloat16)),  # or repeated, without a word
        ):
            with pytest.raises(Refusal, match="a copy is as exact"):
                kept.save(step, shard)
        with pytest.raises(Refusal, match="only a checkpoint on a disk"):
            kept.restore(torch.zeros(3, dtype=torch.bfloat16), range(group.size))
        return True

    assert all(ranks(job, 2))


def test_a_copy_in_the_same_memory_is_refused(ranks: Ranks) -> None:
    def job(group: Group) -> bool:
        with pytest.raises(Refusal, match="that is the rank itself"):
            PeerCheckpoint(group, 2, torch.zeros(1))
        with pytest.raises(Refusal, match="floating-point"):
            masked_mean(torch.zeros(1, dtype=torch.int64), True, group)
        return True

    assert all(ranks(job, 2))


def test_a_step_that_was_made_again_counts_once() -> None:
    log = [Span(0, 2, "step", 1), Span(2, 4, "step", 2), Span(4, 6, "wait"), Span(6, 8, "step", 2)]
    assert goodput(log) == 0.5 and goodput(log, ranks=2) == 0.25
    assert replay(10, 4, Policy(1, 2), []) == 13
    assert replay(10, 4, Policy(1, 2), [3]) == 18
    assert replay(10, 4, Policy(1, 2), [3, 4]) == 19


def test_what_never_ends_is_refused() -> None:
    """Without a pause for a save Young's interval is 0."""
    for interval in (0.0, young(0.0, 5.0), -1.0, float("nan")):
        with pytest.raises(Refusal, match="never ends"):
            replay(10.0, interval, Policy(0.0, 1.0), [3.0])
    for every in (0.0, -1.0, float("inf")):
        with pytest.raises(Refusal, match="above 0"):
            random_faults(3, every, 10.0, 1.0)
