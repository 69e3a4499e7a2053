"""The words beside a mesh: which ranks, in which steps, on which nodes, and what they send.

Paper: Grattafiori et al., "The Llama 3 Herd of Models" (2024), section 3.3.2, for the order.
"""

from __future__ import annotations

from collections.abc import Sequence

from course_lib.plot.mesh.mesh_groups import REPLICAS, Axes, MeshGroups, label, shape_words
from course_lib.plot.player.style import format_bytes

NAMES = {
    "tp": "tensor parallel",
    "cp": "context parallel",
    "ep": "expert parallel",
    "dp": "data parallel",
    "pp": "pipeline",
}
SENT = {
    "tp": "sums of activations, in every block",
    "cp": "keys and values round the ring, in every block",
    "ep": "tokens to their experts and back, in every MoE block",
    "pp": "activations to the next stage and their gradients back, for every micro-batch",
}


def heading(axes: Axes, mesh: MeshGroups) -> str:
    """`Groups of tp: tensor parallel`."""
    if len(axes) > 1:
        return f"Groups of {label(axes, mesh)} together"
    return f"Groups of {axes[0]}" + (f": {NAMES[axes[0]]}" if axes[0] in NAMES else "")


def purpose(axes: Axes, mesh: MeshGroups) -> str:
    """What goes over these axes; empty for those that the course sends only counts over.

    Gradients of experts are averaged over dp × cp, all others over dp × ep × cp.
    """
    found = [SENT[axes[0]]] if len(axes) == 1 and axes[0] in SENT else []
    dense = tuple(axis for axis in mesh.sizes if axis in REPLICAS)
    if axes == dense:
        found.append("gradients of all parameters" + (" but the experts'" if "ep" in dense else ""))
    elif axes == tuple(axis for axis in dense if axis != "ep"):
        found.append("gradients of experts")
    elif axes == ("dp",):
        found.append(f"gradients, as part of {'×'.join(dense)}")
    return "; ".join(found)


def members(group: Sequence[int]) -> str:
    """`4, 5, 6, 7`; of more than 8, `0–71`, or the first four and the last."""
    if len(group) <= 8:
        return ", ".join(map(str, group))
    if group[-1] - group[0] == len(group) - 1:
        return f"{group[0]}–{group[-1]}"
    return ", ".join(map(str, group[:4])) + f", ..., {group[-1]} ({len(group)} ranks)"


def stride(axes: Axes, mesh: MeshGroups) -> str:
    """`1`; for groups without one stride, that of each axis."""
    steps = mesh.steps(axes)
    if len(steps) == 1:
        return str(steps[0])
    return ", ".join(f"{mesh.strides[axis]} on {axis}" for axis in reversed(axes))


def where(group: Sequence[int], mesh: MeshGroups) -> str:
    """`all in node 0`, `on 4 nodes, one rank in each`, `on 2 nodes`."""
    count = mesh.spans(group)
    if count == 1:
        return f"all in node {mesh.node(group[0])}"
    return f"on {count} nodes" + (", one rank in each" if count == len(group) else "")


def how_many(axes: Axes, mesh: MeshGroups) -> str:
    """`16 of 4, each inside a node`."""
    groups = mesh.groups(axes)
    inside = sum(mesh.spans(group) == 1 for group in groups)
    if len(groups) == 1:
        return f"1 of {len(groups[0])}"
    place = {0: "none inside a node", len(groups): "each inside a node"}.get(
        inside, f"{inside} inside a node"
    )
    return f"{len(groups)} of {len(groups[0])}, {place}"


def facts(axes: Axes, rank: int, mesh: MeshGroups) -> list[tuple[str, str]]:
    """Names and values for the frame of these axes."""
    group = next(group for group in mesh.groups(axes) if rank in group)
    found = [
        ("ranks", members(group)),
        ("stride", stride(axes, mesh)),
        ("nodes", where(group, mesh)),
        ("groups", how_many(axes, mesh)),
        ("sends", purpose(axes, mesh)),
    ]
    return [(name, value) for name, value in found if value]


def formula(mesh: MeshGroups) -> str:
    """`16·pp + 4·dp + tp`: a rank from its place."""
    return " + ".join(f"{s}·{axis}" if s > 1 else axis for axis, s in mesh.strides.items()) or "0"


def worked(rank: int, mesh: MeshGroups) -> str:
    """`16·0 + 4·1 + 1`: the same with this rank's place."""
    place = mesh.place(rank)
    each = (f"{s}·{place[axis]}" if s > 1 else str(place[axis]) for axis, s in mesh.strides.items())
    return " + ".join(each) or "0"


def place_words(rank: int, mesh: MeshGroups) -> str:
    """`pp 0, dp 1, tp 1`."""
    return ", ".join(f"{axis} {index}" for axis, index in mesh.place(rank).items())


def first_facts(rank: int, mesh: MeshGroups) -> list[tuple[str, str]]:
    """Names and values for the frame before all axes."""
    return [
        (f"rank {rank}", place_words(rank, mesh) or "alone"),
        ("rank =", formula(mesh)),
        (f"{rank} =", worked(rank, mesh)),
    ]


def first_caption(rank: int, mesh: MeshGroups) -> str:
    """What the frame before all axes shows."""
    return (
        f"{count(mesh.world, 'rank')} on {count(mesh.nodes, 'node')}: "
        f"{shape_words(mesh.sizes) or 'one place'}. The last axis runs fastest: "
        f"rank = {formula(mesh)}. Rank {rank} is {place_words(rank, mesh) or 'alone'}: "
        f"{rank} = {worked(rank, mesh)}."
    )


def caption(
    axes: Axes, rank: int, mesh: MeshGroups, sent: tuple[float, float] | None = None
) -> str:
    """What the frame of these axes shows.

    Args:
        axes: one or more.
        rank: whose group is lit.
        mesh: who is where.
        sent: bytes that a rank sends inside its node and between nodes, if known.
    """
    said = dict(facts(axes, rank, mesh))
    what = "Axes" if len(axes) > 1 else "Axis"
    name = f", {NAMES[axes[0]]}" if len(axes) == 1 and axes[0] in NAMES else ""
    text = (
        f"{what} {' × '.join(axes)}{name}: rank {rank} is in a group with the ranks "
        f"{said['ranks']}; stride {said['stride']}; {said['nodes']}. Groups: {said['groups']}."
    )
    text += f" This group sends {said['sends']}." if "sends" in said else ""
    if sent is None:
        return text
    inside, between = map(format_bytes, sent)
    text += f" In a step a rank sends, on average, {inside} inside its node and {between} between "
    return text + (f"nodes, counted {_way(axes)}." if all(sent) else "nodes.")


def _way(axes: Axes) -> str:
    """How bytes of a group on several nodes were split."""
    ways: dict[Axes, str] = {("ep",): "as if the same went to each", ("pp",): "from stage to stage"}
    return ways.get(axes, "as on a ring in the order of ranks")


def count(number: int, thing: str) -> str:
    """`1 rank`, `2 ranks`."""
    return f"{number} {thing}{'s' * (number != 1)}"
