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
    # BEGIN SOLUTION: the placement
    total = [sum(step[expert] for step in loads) for expert in range(len(loads[0]))]
    return _improved(_packed(total, _copies(total, gpus, slots), gpus, slots), loads)


def _copies(total: list[int], gpus: int, slots: int) -> list[int]:
    """Hands out the copies one at a time, each to the expert whose copies have the most to do.

    DeepSeek's EPLB (2025) counts copies in this way. No other numbers of copies make the heaviest
    copy lighter; how well the copies then fit together on GPUs is another question.
    """
    copies = [1] * len(total)
    for _ in range(gpus * slots - len(total)):
        more = [expert for expert in range(len(total)) if copies[expert] < gpus]
        if more:
            copies[max(more, key=lambda expert: total[expert] / copies[expert])] += 1
    return copies


def _packed(total: list[int], copies: list[int], gpus: int, slots: int) -> list[list[int]]:
    """Places experts with the most copies first, each copy on the GPU with the least load."""
    held: list[list[int]] = [[] for _ in range(gpus)]
    full = [0.0] * gpus
    for expert in sorted(range(len(total)), key=lambda e: (-copies[e], -total[e])):
        free = [gpu for gpu in range(gpus) if len(held[gpu]) < slots]
        for gpu in sorted(free, key=lambda gpu: full[gpu])[: copies[expert]]:
            held[gpu].append(expert)
            full[gpu] += total[expert] / copies[expert]
    return held


def _improved(held: list[list[int]], loads: Sequence[Sequence[int]]) -> list[list[int]]:
    """Swaps two copies as long as that lowers the sum over the steps of the largest load."""
    counts = [sum(expert in mine for mine in held) for expert in range(len(loads[0]))]
    parts = [[step[e] / counts[e] for step in loads] for e in range(len(counts))]
    sums = [[sum(parts[e][t] for e in mine) for t in range(len(loads))] for mine in held]
    best, before = sum(map(max, zip(*sums, strict=True))), float("inf")
    while best < before:
        before = best
        for a, b in combinations(range(len(held)), 2):
            others = [each for gpu, each in enumerate(sums) if gpu not in (a, b)]
            rest = [max(column) for column in zip(*others, strict=True)] or [0.0] * len(loads)
            for mine, other in product(held[a][:], held[b][:]):
                if mine in held[b] or other in held[a] or mine not in held[a]:
                    continue
                moved = [y - x for x, y in zip(parts[mine], parts[other], strict=True)]
                new_a = [load + more for load, more in zip(sums[a], moved, strict=True)]
                new_b = [load - more for load, more in zip(sums[b], moved, strict=True)]
                found = sum(map(max, zip(rest, new_a, new_b, strict=True)))
                if found < best * (1 - 1e-9) and other in held[b]:
                    held[a][held[a].index(mine)] = other
                    held[b][held[b].index(other)] = mine
                    sums[a], sums[b], best = new_a, new_b, found
    return held
    # END SOLUTION
