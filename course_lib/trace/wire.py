"""What a collective must put on the wire: the formulas that every ledger is held against.

Notebook: 00 Ranks and the ledger (alpha_beta_fit), 01 Collectives from scratch (all exercises).
Paper: Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations in MPICH"
(2005), section 4; Patarasuk and Yuan, "Bandwidth optimal all-reduce" (2009), section 3.
Costs: the formulas themselves, for N ranks and S bytes (S is the full, unsharded tensor).
The production version (NCCL) also knows protocol overheads and what the switches can reduce.
"""

from __future__ import annotations

from course_lib.trace.refusal import Refusal

# How the text of each formula reads in a ledger; S is the payload, N the size of the group.
FORMULAS = {
    "all_reduce": "2(N-1)/N·S",
    "reduce_scatter": "(N-1)/N·S",
    "all_gather": "(N-1)/N·S",
    "all_to_all": "(N-1)/N·S",
    "broadcast": "S, once per receiver",
    "reduce": "S, once per sender",
    "gather": "S, once per sender",
    "scatter": "S, once per receiver",
    "barrier": "0",
    "send": "S",
    "recv": "S",
}
COLLECTIVES = tuple(op for op in FORMULAS if op not in ("send", "recv"))


def formula_text(op: str) -> str:
    """The formula of `op`, as it is printed in a ledger; "" for an operation without one."""
    return FORMULAS.get(op, "")


def chunk_sizes(count: int, parts: int) -> list[int]:
    """Sizes of `count` elements cut into `parts` nearly equal chunks, larger ones first.

    The same cut as `torch.Tensor.tensor_split`: 10 elements in 4 chunks are 3, 3, 2, 2.
    """
    base, rest = divmod(count, parts)
    return [base + (i < rest) for i in range(parts)]


def wire_bytes(op: str, payload: int, size: int, index: int, item: int = 1) -> tuple[int, int]:
    """Bytes that a bandwidth-optimal `op` makes one rank send and receive.

    Args:
        op: the collective.
        payload: S, bytes of the full tensor: the input of all_reduce, reduce_scatter, broadcast and
            all_to_all (one rank's whole input), the *output* of all_gather, one member's part of
            scatter and gather.
        size: N, ranks in the group.
        index: this rank's index in the group; for broadcast, scatter, reduce and gather counted
            from the root (the root is 0). A broadcast passes 0, 1, ..., N-1, and a reduce the
            other way: N-1 is the member that only receives, or only sends.
        item: bytes of one element; chunks are cut at elements.

    Returns:
        (sent, received). Summed over the ranks, both are equal: each byte sent arrives once. Where
        N does not divide the tensor, chunks differ by one element, and so do the ranks.

    Raises:
        Refusal: `op` is no collective of the list.
    """
    if op not in COLLECTIVES:
        raise Refusal(
            f"the wire bytes of {op!r}",
            f"known: {', '.join(COLLECTIVES)}",
            "another collective has no formula; a message is S bytes",
        )
    if size == 1 or op == "barrier":
        return 0, 0
    chunks = [n * item for n in chunk_sizes(payload // item, size)]
    # In the ring every rank passes on all chunks but one. Rank r ends the reduce-scatter as owner
    # of chunk r, so that is the one it never sends; in the all-gather it never sends chunk r + 1.
    scatter = payload - chunks[index], payload - chunks[index - 1]
    gather = payload - chunks[(index + 1) % size], payload - chunks[index]
    if op == "reduce_scatter":
        return scatter
    if op == "all_gather":
        return gather
    if op == "all_reduce":
        return scatter[0] + gather[0], scatter[1] + gather[1]
    if op == "all_to_all":
        return payload - chunks[index], payload - chunks[index]
    return _rooted_bytes(op, payload, size, index)


def _rooted_bytes(op: str, payload: int, size: int, index: int) -> tuple[int, int]:
    """The same for the collectives with a root, which has index 0."""
    others = size - 1
    if op == "broadcast":  # a pipelined chain: everyone but the last passes the tensor on
        return payload * (index < others), payload * (index > 0)
    if op == "reduce":
        return payload * (index > 0), payload * (index < others)
    if op == "scatter":
        return (payload * others, 0) if index == 0 else (0, payload)
    return (0, payload * others) if index == 0 else (payload, 0)  # gather
