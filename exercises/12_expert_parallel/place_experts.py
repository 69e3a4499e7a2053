"""place_experts: copies of hot experts, placed so that no GPU is much fuller than the others.

Notebook 12. Open: there is no right answer.

The problem: `loads[t][e]` tokens went to expert e in step t. There are more places than experts, so
hot experts can have copies; an expert's tokens are divided evenly over them. A GPU's load is the
sum over its copies, and all wait for the fullest. One placement is for all steps.

Valid is a list for each GPU of its experts:
- at most `slots` on a GPU, none twice; every expert on some GPU;
- the same on two ranks: no clock, seeded generators; 20 s of processor time in all.

Measured: the fullest GPU's load over the mean one; the mean over the steps and twelve fixed cases.

Your answer may use nothing of `course_lib`.
"""

from collections.abc import Sequence
from itertools import combinations, product


def place_experts(loads: Sequence[Sequence[int]], gpus: int, slots: int) -> list[list[int]]:
    """Which experts each GPU holds.

    Args:
        loads: for each step the tokens of each of E experts, 1 or more.
        gpus: how many.
        slots: places on each; gpus · slots is at least E.

    Returns:
        For each GPU its experts.
    """
    raise NotImplementedError("place_experts: the placement")
