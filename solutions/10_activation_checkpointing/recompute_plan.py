"""recompute_plan: decide which tensors of a graph to drop and when to compute them again.

Notebook 10. This exercise is open: it has no single right answer. Valid plans are compared by how
much they compute again.

Node v of the graph computes tensor v, of sizes[v] bytes, from the tensors of the nodes inputs[v],
at a cost of costs[v]. The nodes count from 0, and every input has a smaller number than its node.
At first, no tensor is in memory. You return a plan: a list of texts, which are carried out in
order:
- `F3` computes tensor 3 and keeps it. Tensor 3 must not be in memory; its inputs must be.
- `D3` drops tensor 3 from memory, where it must be.
- `B3` runs node 3's backward. Tensor 3 and its inputs must be in memory, and they stay there.

A plan is valid if
- each node's backward runs once, from the last node to the first;
- after each text, the tensors in memory have at most `budget` bytes. Gradients do not count. The
  budget is always large enough to prepare any one backward from empty memory;
- two ranks that get the same arguments return the same plan: look at no clock, and seed every
  random generator. All cases of a check together may take 20 s of processor time.

Measured: the cost of computing each tensor once, divided by the cost of all Fs in the plan; more is
better, and 1 would be a plan that computes nothing twice. The figure is the mean over twelve fixed
cases.
"""

from collections.abc import Iterable, Sequence
from itertools import product


def recompute_plan(
    costs: Sequence[int], sizes: Sequence[int], inputs: Sequence[Sequence[int]], budget: int
) -> list[str]:
    """Plans what is computed and dropped, and when each backward runs.

    Args:
        costs: the cost of computing each node's tensor once.
        sizes: bytes of each node's tensor.
        inputs: for each node, the nodes whose tensors it takes; an empty list for node 0.
        budget: bytes that may be in memory.

    Returns:
        Texts such as `F3`, `D3` and `B3`.
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
    """Keeps every tensor until there is no room, then drops the one that is least worth keeping.

    Kirisame et al., "Dynamic Tensor Rematerialization" (2020), do the same without knowing the
    future. Here the graph is known, so the time until the next use replaces the time since the
    last.

    Args:
        costs: as above.
        sizes: as above.
        inputs: as above.
        budget: as above.
        powers: the weights of the cost of computing a tensor again, of its size, and of the time
            until its next use.
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
        """Runs forward and backward; returns whether there was always room for what they need."""
        nodes = range(len(self.costs))
        for self.now, node in enumerate([*nodes, *reversed(nodes)]):
            backward = self.now >= len(nodes)
            needed = {node, *self.inputs[node]} if backward else {node}
            if not all(self.make(each, needed) for each in sorted(needed)):
                return False
            self.plan += [f"B{node}"] * backward
        return True

    def make(self, node: int, held: set[int]) -> bool:
        """Computes a tensor, after its inputs; returns False if what is held leaves no room."""
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
    """Computes all that a backward needs just before it, and keeps nothing afterwards."""
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
    """These nodes and all nodes that they are computed from."""
    found, open_nodes = set[int](), list(nodes)
    while open_nodes:
        node = open_nodes.pop()
        if node not in found:
            found.add(node)
            open_nodes += inputs[node]
    return sorted(found)
    # END SOLUTION
