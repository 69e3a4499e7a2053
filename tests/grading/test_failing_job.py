"""The machine of `failure_policy`: small logs by hand, and a bound that nobody beats."""

from __future__ import annotations

import random

import pytest

from grading.references.open import plans
from grading.references.open.failing_job import Failure, Job, Machine, Policy, bound, log_of

# One round with 4 nodes or with 3, two with 2: three micro-batches.
SMALL = Machine(nodes=4, parts=3, node_mtbf=1, crash_mtbf=1, power_mtbf=1, repair=200, swap=30,
                regroup=10, restart=50, to_memory=2, to_disk=20)  # fmt: skip
NEVER = 10**6


def work(log: list[Failure], memory: int = NEVER, disk: int = NEVER, **policy: int) -> float:
    spares, minimum = policy.get("spares", 0), policy.get("minimum", 3)
    return Job(SMALL, Policy(memory, disk, spares, minimum)).run(log, 1000)


@pytest.mark.parametrize(("found", "expected"), [
    (work([]), 1000),
    (work([], memory=98), 1000 - 10 * 2),  # the tenth ends with the run
    (work([], memory=98, disk=180), 1000 - 4 * 22 - 12),  # a round is 98 + 2 + 82 + 20
    (work([Failure(500, "crash")]), 450),  # no checkpoint: from the start
    (work([Failure(500, "crash")], memory=400), 400 + 450 - 2),
    (work([Failure(500, "power")], memory=400), 450 - 2),
    (work([Failure(501, "crash")], memory=500), 449),  # it was not over: void
    (work([Failure(400, "node", 0)]), 1000 - 2 * 10),  # three go on; it leaves, and joins later
    (work([Failure(400, "node", 0)], minimum=4), 400 + 1000 - (400 + 200 + 30 + 10)),
    (work([Failure(400, "node", 0)], spares=1), 400 + 1000 - (400 + 30 + 10)),
    (work([Failure(400, "node", 3)], spares=1), 1000),  # a spare: nobody notices
    (work([Failure(400, "node", 0)], spares=1, minimum=2), 400 + 20 / 2 + 1000 - (430 + 10)),
    (work([Failure(400, "node", 0), Failure(405, "node", 1)], minimum=2),  # 15 still; then 2 nodes
     400 + (630 - 415) / 2 + 0 + 1000 - (635 + 10)),
])  # fmt: skip
def test_logs_by_hand(found: float, expected: float) -> None:
    assert found == pytest.approx(expected)


def test_nobody_beats_the_bound() -> None:
    lots = random.Random(0)
    for number in range(40):
        draw = plans.fixed(f"bound {number}")
        machine = Machine(*draw(3, 9, 2), *(3600 * hours for hours in draw(20, 90, 4)),
                          *draw(10, 400, 5))  # fmt: skip
        log = log_of(machine, draw)
        for _ in range(5):
            spares = lots.randrange(machine.nodes)
            policy = Policy(lots.randrange(60, 9000), lots.randrange(60, 90000), spares,
                            lots.randint(1, machine.nodes - spares))  # fmt: skip
            assert 0 <= Job(machine, policy).run(log) <= bound(machine, log) + 1e-6


def test_a_log_is_in_order_and_a_node_in_repair_does_not_fail() -> None:
    log = log_of(
        SMALL._replace(node_mtbf=20_000, crash_mtbf=90_000, power_mtbf=90_000, repair=9000),
        plans.fixed("a log"),
    )
    assert log == sorted(log) and {failure.kind for failure in log} == {"node", "crash", "power"}
    for node in range(SMALL.nodes):
        times = [failure.time for failure in log if failure.node == node]
        gaps = [after - before for before, after in zip(times, times[1:], strict=False)]
        assert len(gaps) > 20 and min(gaps) > 9000
