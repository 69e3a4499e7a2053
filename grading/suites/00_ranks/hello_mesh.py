"""hello_mesh: the right place on clusters of several shapes, and groups that work."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist

from course_lib.grade.suite import Exercise, Run, RunFault, check, diagnosis

EXERCISE = Exercise(
    title="Who am I, and who is with me?",
    core=True,
    minutes=15,
    order=2,
    library=("comm.Group",),
    hints=(
        "Write down the node and the local rank of ranks 0 to 5, with 3 ranks on each node. How "
        "do you get the two from dividing the rank by 3? Python has one function for both.",
        "First list the ranks of *every* node, and those of *every* rail. The ranks of a node are "
        "neighbours; those of a rail are `ranks_per_node` apart. Your own are the lists at "
        "`node` and at `local_rank`.",
        "Every rank calls `dist.new_group` once for each list, in the same order, whether it is "
        "in the list or not: `groups = [dist.new_group(ranks) for ranks in nodes]`, and the same "
        "for the rails. Then `groups[node]` is yours.",
    ),
    network="torch",
)

# Ranks in the world -> ranks per node to try: 2 × 3 and 3 × 2 nodes × ranks; 2 × 2 and 1 × 4.
CLUSTERS = {6: (3, 2), 4: (2, 4)}
TOGETHER = (
    "all ranks of the world must call new_group, for the same groups in the same order, including "
    "the ranks that will not be members"
)
GRADERS_CALL = "; the all_reduce is the grader's, over your groups"
GROUP_FAULTS = ("deadlock", "wall", "killed")


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(learner: Any, group: Any, ranks_per_node: list[int]) -> dict[str, Any]:
    """Asks once for each cluster; an all-reduce shows who is in the groups."""
    found = []
    for count in ranks_per_node:
        place = learner.hello_mesh(group, count)
        said = {name: getattr(place, name, None) for name in ("node", "local_rank")}
        for name in ("node_ranks", "rail_ranks"):
            ranks = getattr(place, name, None)
            said[name] = list(ranks) if isinstance(ranks, (list, tuple, range)) else ranks
        for name in ("node_group", "rail_group"):
            handle = getattr(place, name, None)
            handle = getattr(handle, "handle", handle)  # a Group of course_lib.comm is fine, too
            said[name] = _members(handle, group.rank)
        found.append(said)
    return {"found": found}


def _members(handle: Any, rank: int) -> dict[str, Any]:
    """A group's name, and its members as the group itself shows them: each adds 2^rank."""
    if not isinstance(handle, dist.ProcessGroup):
        return {"name": "", "members": handle}
    total = torch.tensor(1 << rank)
    dist.all_reduce(total, group=handle)
    members = [bit for bit in range(64) if int(total) >> bit & 1]
    return {"name": handle.group_name, "members": members}


# --- what they must bring back -------------------------------------------------------------------
def _clusters(run: Run) -> list[tuple[int, int, list[dict[str, Any]]]]:
    """Ranks, ranks per node, and what each rank said, for each cluster."""
    found = []
    for world, counts in CLUSTERS.items():
        try:
            result = run(drive, {"ranks_per_node": list(counts)}, world=world)
        except RunFault as error:
            raise RunFault(_explained(error), error.output) from None
        for place, count in enumerate(counts):
            found.append((world, count, [column[place] for column in result.column("found")]))
    return found


def _explained(error: RunFault) -> Any:
    """The fault, with its reason if the groups were at fault."""
    fault = error.fault
    broken = fault.kind == "exception" and any(w in fault.message for w in ("gloo", "onnect"))
    if fault.kind not in GROUP_FAULTS and not broken:
        return fault
    ours = any("all_reduce" in row for row in fault.rows)
    return replace(fault, cause=TOGETHER + (GRADERS_CALL if ours else ""))


def _cluster(world: int, count: int) -> str:
    return f"with {world} ranks, {count} on each node"


def _lists(world: int, count: int, rank: int) -> dict[str, list[int]]:
    """The right ranks of the node and of the rail."""
    node = [other for other in range(world) if other // count == rank // count]
    rail = [other for other in range(world) if other % count == rank % count]
    return {"node": node, "rail": rail}


@check("node and local rank on clusters of 1, 2 and 3 nodes", points=2, code="E")
@diagnosis("ranks are numbered node by node")
def check_place(run: Run) -> None:
    """E: the two numbers."""
    for world, count, said in _clusters(run):
        for rank in range(world):
            node, local = divmod(rank, count)
            in_turn = rank // (world // count)
            likely = {
                "this is the rank in the world, taken for the local rank": rank,
                "node and local rank are swapped": node,
                "ranks are numbered node by node, not dealt out in turn": in_turn,
            }
            what = f"local_rank {_cluster(world, count)}"
            run.equal(said[rank]["local_rank"], local, what, rank=rank, likely=likely)
            likely = {
                "node and local rank are swapped": local,
                "this is the rank in the world": rank,
            }
            what = f"node {_cluster(world, count)}"
            run.equal(said[rank]["node"], node, what, rank=rank, likely=likely)


def _check_lists(run: Run, kind: str, likely: Any) -> None:
    """Compares `node_ranks` or `rail_ranks` on every rank of every cluster."""
    for world, count, said in _clusters(run):
        for rank in range(world):
            right = _lists(world, count, rank)
            name, other = f"{kind}_ranks", right["rail" if kind == "node" else "node"]
            known = {
                "the ranks of the node and of the rail are swapped": other,
                **likely(world, count, rank),
            }
            what = f"{name} {_cluster(world, count)}"
            run.equal(said[rank][name], right[kind], what, rank=rank, likely=known)


@check("node_ranks: all ranks of my node", points=2, code="E")
@diagnosis("a node's ranks are neighbours: node · ranks_per_node and those after it")
def check_node_ranks(run: Run) -> None:
    """E: the first list."""
    _check_lists(
        run,
        "node",
        lambda world, count, rank: {
            "these are local ranks: a group is made of ranks in the world": list(range(count)),
            "the stride is wrong: ranks are numbered node by node, not dealt out in turn": list(
                range(rank % (world // count), world, world // count)
            ),
        },
    )


@check("rail_ranks: my local rank on every node", points=2, code="E")
@diagnosis("the ranks of a rail are ranks_per_node apart, beginning at the local rank")
def check_rail_ranks(run: Run) -> None:
    """E: the second list."""
    _check_lists(
        run,
        "rail",
        lambda world, count, rank: {
            "the rail begins at this rank instead of at its local rank": list(
                range(rank, world, count)
            ),
            "these are the numbers of the nodes": list(range(world // count)),
            "the stride is the number of nodes; it must be the ranks of a node": list(
                range(rank % (world // count), world, world // count)
            ),
        },
    )


def _check_group(run: Run, kind: str) -> None:
    """Compares who took part in the all-reduce over a group with who should have."""
    for world, count, said in _clusters(run):
        for rank in range(world):
            group, right = said[rank][f"{kind}_group"], _lists(world, count, rank)
            other = right["rail" if kind == "node" else "node"]
            likely = {
                "node group and rail group are swapped": other,
                "this is the group of all ranks": list(range(world)),
                "this is a group that the rank is not in: new_group gave it -100": -100,
                "no group was made": None,
            }
            what = f"who takes part in {kind}_group {_cluster(world, count)}"
            run.equal(group["members"], right[kind], what, rank=rank, likely=likely)


@check("a sum over node_group adds up the node's ranks", points=2, code="E")
def check_node_group(run: Run) -> None:
    """E: by an all-reduce."""
    _check_group(run, "node")


@check("a sum over rail_group adds up the rail's ranks", points=2, code="E")
def check_rail_group(run: Run) -> None:
    """E: by an all-reduce."""
    _check_group(run, "rail")


@check("groups with different members have different names", points=2, code="H")
def check_together(run: Run) -> None:
    """H: torch numbers groups as they are made; who skips one gives two groups the same name."""
    made: dict[tuple[int, str], list[int]] = {}
    for world, _, said in _clusters(run):
        for rank in range(world):
            for kind in ("node_group", "rail_group"):
                name, members = said[rank][kind]["name"], said[rank][kind]["members"]
                run.true(
                    bool(name),
                    f"{kind} is not a torch group that the rank is in",
                    rank=rank,
                    measured=repr(members),
                    cause="make it with dist.new_group",
                )
                first = made.setdefault((world, name), members)
                run.true(
                    members == first,
                    f"two groups have the same name, {name!r}",
                    rank=rank,
                    measured=f"{kind} of ranks {members}",
                    cause=TOGETHER,
                    expected=f"ranks {first}, as where a group of that name was made first",
                )
