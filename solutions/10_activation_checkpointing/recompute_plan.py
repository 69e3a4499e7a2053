"""recompute_plan: which tensors of a graph to drop, and when to compute them again, under a budget.

Notebook 10. Open: there is no right answer.

Node v makes a tensor of sizes[v] bytes from those of its inputs, at a cost of costs[v]. A plan is a
list of texts, done one after the other:
- `F3` makes tensor 3, which is not there; its inputs are;
- `D3` drops tensor 3, which is there;
- `B3` is node 3's backward; tensor 3 and its inputs are there.

A plan is valid if
- each node has one B, the last node first;
- after each step at most `budget` bytes are there: enough to make what any B needs from nothing
  (gradients do not count);
- it is the same on two ranks: no clock, seeded generators; 20 s of processor time in all.

Measured: the cost of making each tensor once over that of all Fs; the mean of twelve fixed cases.
"""

from collections.abc import Iterable, Sequence
from itertools import product


def recompute_plan(
    costs: Sequence[int], sizes: Sequence[int], inputs: Sequence[Sequence[int]], budget: int
) -> list[str]:
    """What is made, dropped and used for a backward, in order.

    Args:
        costs: of each node.
        sizes: bytes of each node's tensor.
        inputs: of each node, the nodes whose tensors it takes.
        budget: bytes.
    """
    # BEGIN SOLUTION: the plan
    best: list[str] = []
    least = float("inf")
    for powers in product(range(3), range(3), range(4)):
        memory = Memory(costs, sizes, inputs, budget, powers)
        if memory.train() and memory.cost < least:
            best, least = memory.plan, memory.cost
    return best or _from_nothing(inputs)


class Memory:
    """Keeps every tensor until there is no room, then drops what is least worth keeping.

    So does Kirisame et al., "Dynamic Tensor Rematerialization" (2020), who do not know the future;
    here the graph is known, so the time of the next use stands for that of the last.

    Args:
        costs: as above.
        sizes: as above.
        inputs: as above.
        budget: as above.
        powers: how much count the cost of making a tensor again, its size, and the time until its
            next use.
    """

    def __init__(
        self,
        costs: Sequence[int],
        sizes: Sequence[int],
        inputs: Sequence[Sequence[int]],
        budget: int,
        powers: tuple[int, ...],
    ) -> None:
        self.costs, self.sizes, self.inputs = costs, sizes, inputs
        self.budget, self.powers = budget, powers
        self.plan: list[str] = []
        self.there: list[int] = []
        self.cost = self.now = 0
        last = 2 * len(costs) - 1  # forwards are at the times 0, 1, ..., backwards follow
        self.uses = [{last - node} for node in range(len(costs))]
        for node, mine in enumerate(inputs):
            for other in mine:
                self.uses[other] |= {node, last - node}

    def train(self) -> bool:
        """Whether there was always room for what a step needs."""
        nodes = range(len(self.costs))
        for self.now, node in enumerate([*nodes, *reversed(nodes)]):
            backward = self.now >= len(nodes)
            needed = {node, *self.inputs[node]} if backward else {node}
            if not all(self.make(each, needed) for each in sorted(needed)):
                return False
            self.plan += [f"B{node}"] * backward
        return True

    def make(self, node: int, held: set[int]) -> bool:
        """Makes a tensor, and first its inputs; False if what is held leaves no room."""
        if node in self.there:
            return True
        held = held | set(self.inputs[node])
        if not all(self.make(each, held) for each in sorted(self.inputs[node])):
            return False
        for each in [each for each in self.there if self.until(each) is None]:
            if each not in held:
                self.drop(each)
        while sum(self.sizes[each] for each in self.there) + self.sizes[node] > self.budget:
            free = [each for each in self.there if each not in held]
            if not free:
                return False
            self.drop(min(free, key=self.worth))
        self.there.append(node)
        self.plan.append(f"F{node}")
        self.cost += self.costs[node]
        return True

    def drop(self, node: int) -> None:
        """Drops a tensor."""
        self.there.remove(node)
        self.plan.append(f"D{node}")

    def until(self, node: int) -> int | None:
        """The time until a tensor's next use; None if there is none."""
        return min((time - self.now for time in self.uses[node] if time >= self.now), default=None)

    def worth(self, node: int) -> float:
        """How much a tensor is worth keeping."""
        again, open_nodes = set[int](), [node]
        while open_nodes:
            each = open_nodes.pop()
            if each not in again:
                again.add(each)
                open_nodes += [other for other in self.inputs[each] if other not in self.there]
        cost, size, time = self.powers
        made = sum(self.costs[each] for each in again)
        wait = 1 + (self.until(node) or 0)
        return float(made**cost / (self.sizes[node] ** size * wait**time))


def _from_nothing(inputs: Sequence[Sequence[int]]) -> list[str]:
    """Before each backward makes all that it needs, and keeps nothing of it."""
    plan: list[str] = []
    for node in reversed(range(len(inputs))):
        needed = {node, *inputs[node]}
        made = _all_before(needed, inputs)
        for place, each in enumerate(made):
            plan.append(f"F{each}")
            later = needed.union(*(inputs[other] for other in made[place + 1 :]))
            before = needed.union(*(inputs[other] for other in made[place:]))
            plan += [f"D{other}" for other in made[: place + 1] if other in before - later]
        plan += [f"B{node}", *(f"D{each}" for each in sorted(needed))]
    return plan


def _all_before(nodes: Iterable[int], inputs: Sequence[Sequence[int]]) -> list[int]:
    """These nodes and all that they are made from."""
    found, open_nodes = set[int](), list(nodes)
    while open_nodes:
        node = open_nodes.pop()
        if node not in found:
            found.add(node)
            open_nodes += inputs[node]
    return sorted(found)
    # END SOLUTION
