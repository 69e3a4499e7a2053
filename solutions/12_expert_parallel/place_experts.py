"""place_experts: copies of hot experts, placed so that no GPU is much fuller than the others.

Notebook 12. Open: there is no right answer.

The problem: `loads[t][e]` tokens went to expert e in step t. There are more places than experts, so
hot experts can have copies; an expert's tokens are divided evenly over them. A GPU's load is the
sum over its copies, and all wait for the fullest. One placement is for all steps.

Valid is a list for each GPU of its experts:
- at most `slots` on a GPU, none twice; every expert on some GPU;
- the same on two ranks: no clock, seeded generators; 20 s of processor time in all.

Measured: the fullest GPU's load over the mean one; the mean over the steps and twelve fixed cases.
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
    # BEGIN SOLUTION: the placement
    total = [sum(step[expert] for step in loads) for expert in range(len(loads[0]))]
    return _improved(_packed(total, _copies(total, gpus, slots), gpus, slots), loads)


def _copies(total: list[int], gpus: int, slots: int) -> list[int]:
    """One more copy, place after place, for the expert whose copies have most to do.

    DeepSeek's EPLB (2025) counts copies in this way. No other counts make the heaviest copy
    lighter; how well the copies then fit together on GPUs is another matter.
    """
    copies = [1] * len(total)
    for _ in range(gpus * slots - len(total)):
        more = [expert for expert in range(len(total)) if copies[expert] < gpus]
        if more:
            copies[max(more, key=lambda expert: total[expert] / copies[expert])] += 1
    return copies


def _packed(total: list[int], copies: list[int], gpus: int, slots: int) -> list[list[int]]:
    """Experts with the most copies first, then the heaviest, each copy to the emptiest GPU."""
    held: list[list[int]] = [[] for _ in range(gpus)]
    full = [0.0] * gpus
    for expert in sorted(range(len(total)), key=lambda e: (-copies[e], -total[e])):
        free = [gpu for gpu in range(gpus) if len(held[gpu]) < slots]
        for gpu in sorted(free, key=lambda gpu: full[gpu])[: copies[expert]]:
            held[gpu].append(expert)
            full[gpu] += total[expert] / copies[expert]
    return held


def _improved(held: list[list[int]], loads: Sequence[Sequence[int]]) -> list[list[int]]:
    """Exchanges two copies as long as that makes the sum of the steps' fullest GPUs smaller."""
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
