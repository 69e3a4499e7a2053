"""Which blocks to recompute: √n segments of equal blocks, or the least time under a budget.

Notebook 10. A checkpoint can cover more than one block. A *segment* is a run of neighbouring blocks
that form one checkpointed function. It keeps only the input of its first block, but in its backward
the activations of all its blocks are in memory together. Many short segments keep many inputs; few
long ones need much memory in their backward. The best plan lies in between.

All memory is counted in inputs: every block's input takes 1. The activations of block i take
`memories[i]`, a whole number (a transformer block's take 17 times its input, or more).

- A block that is *kept* holds its activations from its forward to its own backward.
- A segment that is *recomputed* holds 1 from its forward to its own backward, and during its
  backward also the activations of all its blocks.
- Backward goes from the last segment to the first; after its backward, a segment holds nothing.

So during a segment's backward, memory holds what this segment and all earlier ones hold, and its
activations if it is recomputed. The largest such sum is the plan's *peak*.

Rules
- A plan covers all blocks in order, and no segment is empty. For no blocks it is an empty list.
- Both functions return a best plan; if there are several, any of them will do.
- `best_segments` need not try all plans; there are more than 2^n. For the later blocks, all that
  matters of a plan for the first blocks is how much it holds. So among all plans for the first
  blocks that hold the same, only the cheapest can become part of the best. If at most M is held,
  that leaves n·M plans to remember and n²·M steps.
- Plain Python; nothing is sent.

Your answer may use nothing of `course_lib`.
"""

from collections.abc import Sequence


def sqrt_n_plan(n: int, memory: int = 1) -> list[range]:
    """Segments of equal blocks, all recomputed, with the least peak.

    Args:
        n: number of blocks.
        memory: the size of each block's activations, in inputs; at least 1.

    Returns:
        The blocks of each segment. The peak, which is the number of segments plus `memory` times
        the length of the longest segment, is as small as possible.
    """
    raise NotImplementedError("sqrt_n_plan: equal blocks")


def best_segments(
    times: Sequence[int], memories: Sequence[int], budget: int
) -> list[tuple[range, bool]]:
    """Returns the plan with the least time of recomputation among those within a budget.

    Args:
        times: how long the forward of each block takes.
        memories: the size of each block's activations, in inputs; at least 1.
        budget: the largest peak allowed, in inputs.

    Returns:
        For each segment its blocks, and True if it is recomputed, False if it is kept.

    Raises:
        ValueError: no plan is within the budget.
    """
    raise NotImplementedError("sqrt_n_plan: blocks that differ, and a budget")
