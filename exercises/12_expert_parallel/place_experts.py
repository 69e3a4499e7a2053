"""place_experts: copy hot experts and place them so that no GPU has much more load than the others.

Notebook 12. This exercise is open: it has no single right answer. Valid placements are compared by
the load of the busiest GPU.

In step t, `loads[t][e]` tokens went to expert e. The GPUs have room for at least as many experts as
there are, and often for more. So hot experts can have copies on several GPUs, and an expert's
tokens are divided evenly over its copies. A GPU's load in a step is the number of tokens that its
copies get, and all GPUs wait for the one with the largest load. You choose one placement for all
steps.

You return for each GPU the list of its experts. A placement is valid if
- every GPU has at most `slots` experts, and none of them twice; its list may be empty;
- every expert is on at least one GPU;
- two ranks that get the same arguments return the same placement: look at no clock, and seed every
  random generator. All cases of a check together may take 20 s of processor time.

Measured: the largest load of a GPU divided by the mean load of the GPUs, averaged over the steps;
less is better. The figure is the mean over twelve fixed cases.

Your answer may use nothing of `course_lib`.
"""

from collections.abc import Sequence
from itertools import combinations, product


def place_experts(loads: Sequence[Sequence[int]], gpus: int, slots: int) -> list[list[int]]:
    """Chooses the experts that each GPU holds.

    Args:
        loads: for each step, how many tokens, at least 1, went to each of the E experts.
        gpus: number of GPUs.
        slots: places for experts on each GPU; gpus · slots is at least E.

    Returns:
        For each GPU, the numbers of its experts, from 0.
    """
    raise NotImplementedError("place_experts: the placement")
