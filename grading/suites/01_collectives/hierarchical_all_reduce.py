"""hierarchical_all_reduce: right on grids of nodes, few bytes between the nodes."""

from __future__ import annotations

from typing import Any

import torch

from course_lib.comm import Mesh
from course_lib.grade.suite import Exercise, Run, check, diagnosis
from grading.references.communication import in_place

EXERCISE = Exercise(
    title="All-reduce on two levels",
    core=False,
    minutes=30,
    order=7,
    library=(
        "comm.Group",
        "comm.Work",
        "comm.send",
        "comm.recv",
        "comm.isend",
        "comm.irecv",
        "comm.exchange",
    ),
    hints=(
        "Two nodes with two ranks each. After a reduce-scatter inside the nodes, each rank has one "
        "half, summed over its node. Who has the same half in the other node? What is missing "
        "after those two have summed theirs?",
        "Four passes: reduce-scatter in `node`, which leaves one part on each rank; "
        "reduce-scatter and all-gather in `between`, of that part only; all-gather in `node`. For "
        "the passes in `between`, cut the part again, into `between.size` pieces.",
        "`ring_pass(parts, node.index - 1, node, adds=True)` leaves part `node.index` complete; "
        "`pieces = parts[node.index].tensor_split(between.size)` are views of it. Then the passes "
        "over `between`: from `index - 1` adding, from `index` replacing; then the last in `node`.",
    ),
)

GRIDS = ((2, 2), (1, 3), (3, 1), (3, 2))  # nodes, ranks in each
DIVISIBLE = 48  # elements; divides by 2, 4 and 6


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(learner: Any, group: Any, tensors: list[torch.Tensor], nodes: int) -> dict[str, Any]:
    """Sums each tensor over a grid."""
    return in_place.called([_sum_over(learner, group, nodes)], tensors)


def drive_transposed(learner: Any, group: Any, tensor: torch.Tensor, nodes: int) -> dict[str, Any]:
    """Sums a view that is not contiguous."""
    return in_place.called_on_a_view(_sum_over(learner, group, nodes), tensor)


def drive_unordered(learner: Any, group: Any, tensor: torch.Tensor) -> dict[str, Any]:
    """Sums over two nodes of two ranks, which do not ascend in any group."""
    node = group.split([[3, 1], [2, 0]], "node")
    between = group.split([[3, 2], [1, 0]], "between")
    learner.hierarchical_all_reduce(tensor, node, between)
    return {"tensor": tensor}


def _sum_over(learner: Any, group: Any, nodes: int) -> in_place.Call:
    grid = Mesh(group, {"between": nodes, "node": group.size // nodes})
    return lambda tensor: learner.hierarchical_all_reduce(tensor, grid["node"], grid["between"])


# --- what they must bring back -------------------------------------------------------------------
def likely(rows: list[torch.Tensor], rank: int, per_node: int) -> dict[str, torch.Tensor]:
    """Known wrong answers for one tensor on one rank."""
    stack = torch.stack(rows)
    first = rank - rank % per_node
    return {
        "the tensor was not changed: work on it in place, not on a copy": rows[rank],
        "this is the sum over the node: the other nodes are missing":
            stack[first : first + per_node].sum(0),
        "this is the sum over the ranks in the same place: the rest of the node is missing":
            stack[rank % per_node :: per_node].sum(0),
        "this is the mean: the sum must not be divided": stack.sum(0) / len(rows),
    }  # fmt: skip


def _compare(run: Run, nodes: int, per_node: int, tensors: list[list[torch.Tensor]]) -> Any:
    """Sums all tensors on a grid and compares each value on each rank."""
    world = nodes * per_node
    inputs = [{"tensors": tensors[rank], "nodes": nodes} for rank in range(world)]
    result = run(drive, inputs, world=world)
    for rank, found in enumerate(run.each(result.outputs)):
        for index in range(len(tensors[0])):
            rows = [tensors[other][index] for other in range(world)]
            what = f"the tensor ({in_place.shape_of(rows[0])}, {nodes} nodes of {per_node})"
            right, known = torch.stack(rows).sum(0), likely(rows, rank, per_node)
            run.close(found["values"][index], right, what, terms=world, likely=known)
    return result


def _one(run: Run, nodes: int, per_node: int) -> Any:
    """One sum of one tensor, for looking at its messages."""
    world = nodes * per_node
    inputs = [{"tensors": [run.random(DIVISIBLE)], "nodes": nodes} for _ in range(world)]
    return run(drive, inputs, world=world)


def crossing(result: Any, per_node: int) -> list[int]:
    """Bytes that each rank sends to ranks of other nodes, whatever group it used."""
    return [
        sum(
            event.sent
            for event in ledger.events
            if event.op == "send" and event.peer // per_node != event.rank // per_node
        )
        for ledger in result.ledgers
    ]


@check("the sum over all ranks of all nodes, sizes that do not divide", points=3, code="E")
@diagnosis("look at one element: which ranks' values are in it after each pass?")
def check_sum(run: Run) -> None:
    """E: float64, hidden sizes; also one node, and nodes of one rank."""
    for nodes, per_node in GRIDS:
        shapes: list[tuple[int, ...]] = [(12 * run.number(3, 40) + 5,), (3, 5), (2,), (), (0,)]
        tensors = [[run.random(shape) for shape in shapes] for _ in range(nodes * per_node)]
        _compare(run, nodes, per_node, tensors)


@check("the same tensor, with its dtype; also float32, int64 and a view", points=2, code="E")
@diagnosis("the parts must be views of the tensor, so that writing to them changes it")
def check_in_place(run: Run) -> None:
    """E: in place, other dtypes, and a tensor that is not contiguous."""
    nodes, per_node, world = 2, 2, 4
    result = _compare(run, nodes, per_node, in_place.of_any_dtype(run, world))
    in_place.compare_memory(run, result)
    wide = [run.random((5, 7)) for _ in range(world)]
    inputs = [{"tensor": tensor, "nodes": nodes} for tensor in wide]
    result = run(drive_transposed, inputs, world=world)
    in_place.compare_view(run, result, wide, torch.stack(wide).sum(0), "summed")


@check("groups in which the ranks do not ascend", points=1, code="E")
@diagnosis("a rank's place in a group is `group.index`; its number in the world does not tell it")
def check_unordered(run: Run) -> None:
    """E: nodes of the ranks 3, 1 and 2, 0."""
    tensors = [run.random(DIVISIBLE) for _ in range(4)]
    result = run(drive_unordered, [{"tensor": tensor} for tensor in tensors], world=4)
    for found in run.each(result.outputs):
        run.close(found["tensor"], torch.stack(tensors).sum(0), "the tensor")


@check("2(n-1)/n·S/g bytes to other nodes, from every rank", points=3, code="B")
@diagnosis("only one part in g of the tensor goes to other nodes, in a ring over `between`")
def check_between(run: Run) -> None:
    """B: exact, whatever group the messages were sent in."""
    size = DIVISIBLE * 8
    for nodes, per_node in ((2, 2), (3, 2), (3, 1)):
        result = _one(run, nodes, per_node)
        world = nodes * per_node
        share = 2 * (nodes - 1) * size // (nodes * per_node)
        last = [rank % per_node == per_node - 1 for rank in range(world)]
        leaders = [rank % per_node == 0 for rank in range(world)]
        run.equal(
            crossing(result, per_node), [share] * world,
            f"the list of bytes that each rank sends to other nodes ({nodes} nodes of {per_node})",
            likely={
                "the whole tensor crosses, not one part in g: reduce-scatter inside the node first":
                    [share * per_node] * world,
                "a flat ring over all ranks: all bytes cross, by one link of each node":
                    [2 * (world - 1) * size // world * is_last for is_last in last],
                "one rank sends for its whole node: the other network cards are idle":
                    [share * per_node * leads for leads in leaders],
                "each rank sends its whole part to every other node: cut it, and pass the pieces "
                "round":
                    [(nodes - 1) * size // per_node] * world,
            },
        )  # fmt: skip


@check("2(g-1)/g·S bytes inside the node", points=2, code="B")
@diagnosis("one reduce-scatter and one all-gather inside the node, of (g-1)/g·S each")
def check_inside(run: Run) -> None:
    """B: exact."""
    size = DIVISIBLE * 8
    for nodes, per_node in ((2, 2), (3, 2)):
        result = _one(run, nodes, per_node)
        right = 2 * (per_node - 1) * size // per_node
        known = {
            "one pass too many: each rank needs only its part until it is summed over all "
            "nodes": right * 3 // 2,
            "twice as many: one reduce-scatter and one all-gather are enough": 2 * right,
        }
        run.bytes(result, right, what="bytes sent inside the node", axis="node", likely=known)


@check("built from messages alone", points=1, code="X")
@diagnosis("copy your own ring into the file, or use `ring_pass`")
def check_messages(run: Run) -> None:
    """X: no collective of torch, and not comm's own rings."""
    run.messages_alone(_one(run, 2, 2))


@check("large messages end", points=1, code="H")
def check_large(run: Run) -> None:
    """H: parts of 256 KiB, so that a send cannot hide in a buffer."""
    _compare(run, 2, 2, [[run.random(1 << 16)] for _ in range(4)])
