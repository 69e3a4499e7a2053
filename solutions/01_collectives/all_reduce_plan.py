"""all_reduce_plan: an all-reduce, message by message, for links of unequal speed.

Notebook 01. Open: there is no right answer.

speeds[a][b] is what the link from rank a to b carries in a µs; 0: there is none. Each rank has
`chunks` chunks of `size` bytes. A plan is a list of rounds of messages (a, b, chunk, add): a sends
its chunk as it was before the round; b adds it to its own if `add` is 1, or replaces its own if 0.
A round takes

    latency + the longest of its links' bytes / speed.

A plan is valid if
- in the end every rank has the sum over all ranks, each counted once;
- a chunk that is replaced on a rank gets no other message in that round;
- it is the same on two ranks: no clock, seeded generators; 20 s of processor time in all.

Measured: a lower bound over the rounds' time; the mean of twelve fixed cases.
"""

from collections import Counter
from collections.abc import Sequence

Message = tuple[int, int, int, int]  # from, to, chunk, whether it is added
Tree = dict[int, int]  # the parent of each rank but the root; parents come first


def all_reduce_plan(
    speeds: Sequence[Sequence[int]], chunks: int, size: int, latency: int
) -> list[list[Message]]:
    """The messages of each round.

    Args:
        speeds: bytes in a µs from each rank (row) to each other (column); the same both ways.
        chunks: of each rank's vector.
        size: bytes of a chunk.
        latency: µs of a round.
    """

    # BEGIN SOLUTION: the rounds
    def time(rounds: list[list[Message]]) -> float:
        total = 0.0
        for messages in rounds:
            sent = Counter((a, b) for a, b, *_ in messages)
            total += latency + max(count * size / speeds[a][b] for (a, b), count in sent.items())
        return total

    fastest = max(map(max, speeds))
    found = []
    for depth in (0, 0.3, 1, 3, 10, chunks * fastest):
        trees = _trees(speeds, chunks, depth / fastest)
        slowest = min(speeds[a][b] for tree in trees for a, b in tree.items())
        for most in (1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32):  # chunks of the slowest link, a round
            found.append(_rounds(speeds, trees, most / slowest))
    return min(found, key=time)


def _trees(speeds: Sequence[Sequence[int]], chunks: int, depth: float) -> list[Tree]:
    """A tree for each chunk, which avoids links that have much to carry already.

    Wang et al., "Blink" (2020), pack trees in this way, with a linear program.

    Args:
        speeds: of the links.
        chunks: how many.
        depth: what a step away from the root counts, in the time of a byte.
    """
    load: Counter[tuple[int, int]] = Counter()

    def cost(a: int, b: int) -> float:
        return (load[a, b] + 1) / speeds[a][b]

    def grown(root: int) -> tuple[float, float, int, Tree]:
        """The tree from a root, after its slowest link and the sum of its costs."""
        tree, away = Tree(), {root: 0}
        while len(away) < len(speeds):
            *_, a, b = min(
                (cost(a, b) + depth * away[a], away[a], a, b)
                for a in away
                for b in range(len(speeds))
                if speeds[a][b] and b not in away
            )
            tree[b], away[b] = a, away[a] + 1
        costs = [cost(a, b) for b, a in tree.items()]
        return max(costs), sum(costs) + depth * sum(away.values()), root, tree

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
