"""Which blocks to recompute: √n segments of equal blocks, or the least time under a budget.

Notebook 10. What is checkpointed need not be one block. A *segment*, neighbouring blocks that run
as one checkpointed function, keeps only the input of its first block; but when its backward comes,
the activations of all its blocks are there together. Many short segments keep many inputs, few long
ones have much to compute again at a time. In between there is a best.

All memory is counted in inputs: the input of a block takes 1, whichever block. The activations of
block i take `memories[i]`, a whole number (a transformer's block takes 17 of its input, or more).

- A block that is *kept* holds its activations from its forward to its own backward.
- A segment that is *recomputed* holds 1 from its forward to its own backward, and while that goes
  on all its blocks' activations too.
- Backward goes from the last segment to the first; what a segment held is gone after its backward.

So when a segment's backward begins, what it and all segments before it hold is there, and if it is
recomputed its activations as well. The largest such sum is the plan's *peak*.

Rules
- A plan covers all blocks in order, and no segment is empty. For no blocks it is an empty list.
- Both functions return a best plan; among several best ones any will do.
- `best_segments` need not try all plans: there are more than 2 to the power of n. All that later
  blocks want to know of a plan for the first blocks is what it holds. So of the plans for the first
  blocks that hold the same, only the cheapest can become part of the best. With at most M held,
  that is n·M plans to remember and n²·M steps.
- Plain Python; nothing is sent.

Your answer may use nothing of `course_lib`.
"""

from collections.abc import Sequence


def sqrt_n_plan(n: int, memory: int = 1) -> list[range]:
    """Segments of equal blocks, all recomputed, with the least peak.

    Args:
        n: blocks.
        memory: what the activations of each take, in inputs; at least 1.

    Returns:
        The blocks of each segment: their peak, the number of segments and `memory` times the
        length of the longest, is the least that is possible.
    """
    raise NotImplementedError("sqrt_n_plan: equal blocks")


def best_segments(
    times: Sequence[int], memories: Sequence[int], budget: int
) -> list[tuple[range, bool]]:
    """The plan that recomputes for the least time, among those whose peak is within a budget.

    Args:
        times: what the forward of each block takes.
        memories: what the activations of each block take, in inputs; at least 1.
        budget: the largest peak allowed, in inputs.

    Returns:
        For each segment its blocks, and whether it is recomputed or kept.

    Raises:
        ValueError: no plan is within the budget.
    """
    raise NotImplementedError("sqrt_n_plan: blocks that differ, and a budget")
