"""failure_policy: four numbers for a machine; the work that logs of failures leave is the figure.

Source: Young (1974) and Daly (2006) for the intervals; Wang et al., "Gemini" (2023), for
checkpoints in memory; torchft for a job that goes on with fewer. The bound is 0 %: every node
computes whenever it is not in repair, and after a crash for all but the restart.
"""

from __future__ import annotations

from typing import Any

from course_lib.grade.suite import Exercise, Run, check, describe
from grading.references.open import failing_job, plans
from grading.references.open.failing_job import Failure, Job, Machine, Policy

EXERCISE = Exercise(
    title="Open: checkpoints, spares and a quorum",
    core=False,
    minutes=45,
    order=7,
    open=("% of the possible work is lost", 15.291, 11.5214),
    library=(),
    hints=(
        "The four numbers fall into two pairs. Against which failures does a checkpoint in memory "
        "help, and against which one on disk? Section 8 has the formula for both intervals.",
        "How many steps fit into an hour with all nodes, with one less, with two less? As long as "
        "ceil(parts / k) stays the same, a spare costs nothing, and when a spare fails, the job "
        "does not stand still.",
        "Each node is in repair for the share repair / (node_mtbf + repair) of the time, so the "
        "number of nodes in repair is binomial. Try all pairs of spares and minimum: compute the "
        "mean speed, and subtract the time for which the job stands still.",
    ),
)

HOUR = 3600
Case = tuple[Machine, list[Failure]]


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(learner: Any, group: Any, cases: list[list[Any]]) -> dict[str, Any]:
    """The policy of each machine."""
    return {"plans": [learner.failure_policy(dict(machine)) for (machine,) in cases]}


# --- the cases, and what is looked at ------------------------------------------------------------
def _machine(draw: plans.Draw) -> Machine:
    """Some nodes, of which up to three are more than a step needs."""
    nodes, rounds, more = draw(6, 15, 1) + draw(1, 5, 1) + draw(0, 4, 1)
    return Machine(
        nodes=nodes,
        parts=(nodes - more) * rounds,
        node_mtbf=HOUR * draw(40, 201, 1)[0],
        crash_mtbf=HOUR * draw(4, 25, 1)[0],
        power_mtbf=HOUR * draw(48, 169, 1)[0],
        repair=HOUR * draw(1, 9, 1)[0],
        swap=draw(20, 301, 1)[0],
        regroup=draw(120, 1201, 1)[0],
        restart=draw(120, 901, 1)[0],
        to_memory=draw(5, 61, 1)[0],
        to_disk=draw(120, 901, 1)[0],
    )


def _case(draw: plans.Draw) -> Case:
    """A machine, and what happens to it."""
    machine = _machine(draw)
    return machine, failing_job.log_of(machine, draw)


def _ask(run: Run, machines: list[Machine]) -> list[Any]:
    """The policies, checked."""
    found = plans.ask(run, drive, [[machine._asdict()] for machine in machines])
    for machine, policy in zip(machines, found, strict=True):
        _check_policy(run, machine, policy)
    return found


def _check_policy(run: Run, machine: Machine, policy: Any) -> None:
    """That the policy is valid."""
    run.true(
        plans.is_whole(policy, 1) and len(policy) == 4,
        "this is not (memory, disk, spares, minimum) in whole numbers",
        measured=describe(policy),
    )
    memory, disk, spares, minimum = policy
    for name, seconds in (("memory", memory), ("disk", disk)):
        run.true(seconds >= 60, f"{name} is {seconds} seconds", expected="60 or more")
    run.true(
        0 <= spares < machine.nodes,
        f"{spares} of {machine.nodes} nodes are spares",
        expected="0 or more, and at least one node left in the job",
    )
    size = machine.nodes - spares
    run.true(
        2 * minimum > size,
        f"a job of {size} nodes goes on with {minimum}",
        expected="more than half of them",
        cause="the other half might be alive as well, and also go on",
    )
    run.at_most(minimum, size, f"the minimum of a job of {size} nodes")


def _lost(case: Case, policy: list[int]) -> float:
    """Percent of the bound."""
    machine, log = case
    done = Job(machine, Policy(*policy)).run(log)
    return 100 * (1 - done / failing_job.bound(machine, log))


@check("valid intervals, spares and quorum", points=3, code="E")
def check_policy(run: Run) -> None:
    """E: hidden machines; one node; no failures to speak of; a failure every few minutes."""
    draw = plans.hidden(run)
    machines = [_machine(draw) for _ in range(6)]
    first = machines[0]
    rare, often = {"crash_mtbf": 10**8, "power_mtbf": 10**9}, {"crash_mtbf": 300, "to_memory": 1}
    machines += [first._replace(nodes=1), first._replace(nodes=2, parts=3)]
    machines += [first._replace(**rare), first._replace(**often, node_mtbf=600)]
    _ask(run, machines)


@check("the figure over the twelve fixed logs", points=2, code="S")
def check_work(run: Run) -> None:
    """S: the mean of what is lost."""
    cases = [_case(plans.fixed(f"failure_policy {n}")) for n in range(plans.CASES)]
    found = _ask(run, [machine for machine, _ in cases])
    run.figure = plans.mean(list(map(_lost, cases, found)))
