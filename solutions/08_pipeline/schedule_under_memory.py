"""schedule_under_memory: an order of actions with little waiting, where stages and memory differ.

Notebook 08. Open: there is no right answer.

Rank r runs stage r: F takes forward[r], I (the input's gradient) input[r], W (the weights')
weight[r], a whole backward B input[r] + weight[r]. Results reach the next rank `message` later. A
micro-batch's activations are held from the begin of its F to the end of its W or B.

Valid is a list of texts for each rank, its actions in order; `2F5` is stage 2's F of micro-batch 5:
- each micro-batch passes each stage with F and B, or F, I and W; no ranks wait in a circle
  (`course_lib.schedule.simulate`);
- rank r holds at most limits[r] micro-batches;
- the same on two ranks: no clock, seeded generators; 20 s of processor time in all.

Measured: the schedule's length over a lower bound; the mean of twelve fixed cases.
"""

from collections.abc import Sequence


def schedule_under_memory(
    forward: Sequence[int],
    input: Sequence[int],
    weight: Sequence[int],
    message: int,
    limits: Sequence[int],
    micro_batches: int,
) -> list[list[str]]:
    """The actions of each rank.

    Args:
        forward: time of F on each rank.
        input: time of I.
        weight: time of W.
        message: from a rank to the next.
        limits: micro-batches whose activations fit on each rank, 1 or more.
        micro_batches: m.
    """

    # BEGIN SOLUTION: the actions
    def greedy(letters: str, patience: float, less: int) -> tuple[int, list[list[str]]]:
        """What can begin first, begins; W fills the time in which nothing else can.

        Qi et al., "Zero Bubble Pipeline Parallelism" (2023), fill gaps with W by such rules.

        Args:
            letters: what goes first of what could begin at the same time.
            patience: how much of a W's time a rank rather waits for F or I.
            less: micro-batches that a rank holds less than it may.
        """
        plan: list[list[str]] = [[] for _ in forward]
        free, ends = [0] * ranks, dict[str, int]()
        done = {letter: [0] * ranks for letter in takes}

        def begin(rank: int, letter: str) -> int | None:
            """When a rank's next action of this letter can begin; None if that is not known."""
            micro = done[letter][rank]
            held = micro - done["W"][rank]
            if micro == micro_batches or (letter == "F" and held >= max(1, limits[rank] - less)):
                return None
            time = free[rank]
            for other, needed in _needs(rank, letter, ranks):
                if f"{other}{needed}{micro}" not in ends:
                    return None
                travels = message if other != rank else 0
                time = max(time, ends[f"{other}{needed}{micro}"] + travels)
            return time

        while done["W"] != [micro_batches] * ranks:
            could = []
            for rank in range(ranks):
                mine = []
                for place, letter in enumerate(letters):
                    if (time := begin(rank, letter)) is not None:
                        wait = patience * weight[rank] * (letter == "W")
                        mine.append((time + wait, place, time, letter))
                if mine:
                    could.append((min(mine)[2], rank, min(mine)[3]))
            time, rank, letter = min(could)
            plan[rank].append(f"{rank}{letter}{done[letter][rank]}")
            ends[plan[rank][-1]] = free[rank] = time + takes[letter][rank]
            done[letter][rank] += 1
        return max(free), plan

    ranks = len(forward)
    takes = {"F": forward, "I": input, "W": weight}
    return min(
        greedy(letters, patience, less)
        for letters in ("IFW", "FIW")
        for patience in (0.0, 0.25, 0.5, 1.0)
        for less in (0, 1)
    )[1]


def _needs(rank: int, letter: str, ranks: int) -> list[tuple[int, str]]:
    """The actions, as (rank, letter), that one waits for."""
    if letter == "F":
        return [(rank - 1, "F")] if rank else []
    if letter == "W":
        return [(rank, "I")]
    return [(rank, "F"), (rank + 1, "I")][: ranks - rank]
    # END SOLUTION
