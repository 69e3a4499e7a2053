"""all_reduce_plan: plan an all-reduce, message by message, for links of unequal speed.

Notebook 01. This exercise is open: it has no single right answer. Valid plans are compared by the
time that they take.

Every rank has a vector of `chunks` chunks of `size` bytes each, and in the end every rank must have
the sum of all vectors. You return a plan: a list of rounds, each a list of messages (a, b, chunk,
add). In a message, rank a sends its chunk number `chunk` to rank b. If `add` is 1, rank b adds it
to its own chunk of that number; if `add` is 0, it replaces its own chunk. All messages of a round
carry the values from before the round. A round takes

    latency + the largest (bytes sent over a link in this round / speed of the link).

The two directions of a link count as two links.

A plan is valid if
- after the last round, every chunk on every rank is the sum over all ranks, each counted once;
- every message goes over a link that exists;
- a chunk that is replaced in a round receives no other message in that round;
- two ranks that get the same arguments return the same plan: look at no clock, and seed every
  random generator. All cases of a check together may take 20 s of processor time.

Measured: a lower bound for the time, divided by the time of your plan; more is better, and no plan
reaches more than 1. The figure is the mean over twelve fixed cases.
"""

import math
from collections import Counter
from collections.abc import Sequence

Message = tuple[int, int, int, int]  # from, to, chunk, whether it is added
Tree = dict[int, int]  # the parent of each rank except the root; parents come first


def all_reduce_plan(
    speeds: Sequence[Sequence[int]], chunks: int, size: int, latency: int
) -> list[list[Message]]:
    """Plans the rounds.

    Args:
        speeds: `speeds[a][b]` is the speed of the link from rank a to rank b in bytes per µs, the
            same in both directions; 0 means that there is no link. The links connect all ranks.
        chunks: number of chunks in each rank's vector.
        size: bytes of one chunk.
        latency: µs that each round costs, whatever is sent in it.

    Returns:
        The rounds in order; the four numbers of a message are Python ints, counted from 0.
    """

    # BEGIN SOLUTION: the rounds
    def time(rounds: list[list[Message]]) -> float:
        total = 0.0
        for messages in rounds:
            sent = Counter((a, b) for a, b, *_ in messages)
            total += latency + max(count * size / speeds[a][b] for (a, b), count in sent.items())
        return total

    found = []
    fastest = max(map(max, speeds))
    for depth in (0, 1, 2, 3, 5, 7, 10, 14, 20, 30, 45, 60, 100, 200, 400, 10 * chunks * fastest):
        trees = _trees(speeds, chunks, depth)
        slowest = min(speeds[a][b] for tree in trees for a, b in tree.items())
        for most in (1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32):  # chunks of the slowest link, a round
            found.append(_rounds(speeds, trees, most / slowest))
    return min(found, key=time)


def _trees(speeds: Sequence[Sequence[int]], chunks: int, depth: int) -> list[Tree]:
    """A tree for each chunk, which avoids links that have much to carry already.

    Wang et al., "Blink" (2020), pack trees in this way, with a linear program. Costs are whole
    numbers: where two are equal, no rounding decides, and so every Python finds the same trees.

    Args:
        speeds: of the links.
        chunks: how many.
        depth: what a step away from the root counts, in tenths of a chunk on the fastest link.
    """
    load: Counter[tuple[int, int]] = Counter()
    whole = math.lcm(*(speed for row in speeds for speed in row if speed))
    step = depth * (whole // max(map(max, speeds)))

    def cost(a: int, b: int) -> int:
        return 10 * (load[a, b] + 1) * (whole // speeds[a][b])

    def grown(root: int) -> tuple[int, int, int, Tree]:
        """A root's tree, after its slowest link with its longest way, and its costs."""
        tree, away = Tree(), {root: 0}
        while len(away) < len(speeds):
            *_, a, b = min(
                (cost(a, b) + step * away[a], away[a], a, b)
                for a in away
                for b in range(len(speeds))
                if speeds[a][b] and b not in away
            )
            tree[b], away[b] = a, away[a] + 1
        costs = [cost(a, b) for b, a in tree.items()]
        return max(costs) + step * max(away.values()), sum(costs), root, tree

    trees = []
    for _ in range(chunks):
        trees.append(min(map(grown, range(len(speeds))), key=lambda each: each[:3])[3])
        for b, a in trees[-1].items():
            load.update([(a, b), (b, a)])
    return trees


def _rounds(
    speeds: Sequence[Sequence[int]], trees: Sequence[Tree], time: float
) -> list[list[Message]]:
    """Sums go up each tree, then down again; of what could go, the longest ways first.

    Args:
        speeds: of the links.
        trees: of the chunks.
        time: of a round: a link carries time · speed chunks.
    """
    needs: dict[Message, list[Message]] = {}
    steps: dict[Message, int] = {}  # from this message to the end
    for chunk, tree in enumerate(trees):
        away = {root: 0 for root in tree.values() if root not in tree}
        for b, a in tree.items():
            away[b] = away[a] + 1
        ups = {b: (b, a, chunk, 1) for b, a in tree.items()}
        downs = {b: (a, b, chunk, 0) for b, a in tree.items()}
        for b, a in tree.items():
            needs[ups[b]] = [ups[other] for other in tree if tree[other] == b]
            at_root = [ups[other] for other in tree if tree[other] == a]
            needs[downs[b]] = [downs[a]] if a in downs else at_root
            steps[ups[b]] = max(away.values()) + away[b]
            steps[downs[b]] = max(away.values()) - away[a]
    left, done, rounds = sorted(needs, key=lambda m: (-steps[m], m)), set[Message](), []
    while left:
        sent: Counter[tuple[int, int]] = Counter()
        messages = []
        for message in left:
            a, b, *_ = message
            room = sent[a, b] + 1 <= time * speeds[a][b] * (1 + 1e-9)
            if room and done.issuperset(needs[message]):
                messages.append(message)
                sent[a, b] += 1
        rounds.append(messages)
        done |= set(messages)
        left = [message for message in left if message not in done]
    return rounds
    # END SOLUTION
