"""What one process makes of the museum's exhibits about state, and the slips that are known."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import nn

from course_lib.comm import Group, all_reduce
from course_lib.grade.suite import Run

RATE = 0.1
STATE_BYTES = 5056  # of torch's generator


# --- naming --------------------------------------------------------------------------------------
# --- 1: a step of a sharded optimizer ------------------------------------------------------------
class Update(NamedTuple):
    """What is there after one update: the weights of all ranks, the scale of each."""

    weights: torch.Tensor
    scales: list[float]


class Shards:
    """Updates of weights whose gradient is cut over the ranks.

    Args:
        weights: at the beginning, [n].
        gradients: of each rank and update, [n / ranks], scaled.
        scale: at the beginning.
    """

    def __init__(
        self, weights: torch.Tensor, gradients: list[list[torch.Tensor]], scale: float
    ) -> None:
        self.weights, self.gradients, self.scale = weights, gradients, scale

    def play(self, how: str = "") -> list[Update]:
        """All updates; `how` is "" if all goes well, or names a slip.

        With `alone` each rank skips and halves by itself, with `replaced` a step is made without
        the numbers that are not finite.
        """
        weights, scales = self.weights.clone(), [self.scale] * len(self.gradients)
        found = []
        for gradients in zip(*self.gradients, strict=True):
            bad = [not bool(g.isfinite().all()) for g in gradients]
            skip = [any(bad)] * len(bad) if how != "alone" else bad
            for part, g, skips, scale in zip(
                weights.chunk(len(bad)), gradients, skip, scales, strict=True
            ):
                if not skips or how == "replaced":
                    part -= RATE * g.nan_to_num(0.0, 0.0, 0.0) / scale
            scales = [s / 2 if skips else s for s, skips in zip(scales, skip, strict=True)]
            found.append(Update(weights.clone(), scales))
        return found


# --- 2: dropout before and after a checkpoint ----------------------------------------------------
def make_model(weight: torch.Tensor) -> nn.Linear:
    """One layer."""
    model = nn.Linear(weight.shape[1], weight.shape[0], bias=False).double()
    with torch.no_grad():
        model.weight.copy_(weight)
    return model


def draw(inputs: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """A dropout mask: what stays."""
    return torch.rand(inputs.shape, generator=generator) < 0.5


def dropout_gradient(model: nn.Linear, inputs: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The gradient of the mean squared output, where half of the inputs are dropped."""
    loss = model(inputs * mask * 2).square().mean()
    return torch.autograd.grad(loss, [model.weight])[0]


def step_with_dropout(
    model: nn.Linear, inputs: torch.Tensor, generator: torch.Generator, group: Group
) -> torch.Tensor:
    """One SGD step of replicas, each with its own inputs and masks; one all-reduce. The mask."""
    mask = draw(inputs, generator)
    gradient = dropout_gradient(model, inputs, mask)
    all_reduce(gradient, group, "avg")
    with torch.no_grad():
        model.weight -= RATE * gradient
    return mask


class Replicas:
    """A job of replicas that is stopped after some steps, and resumed for as many.

    Args:
        weight: at the beginning.
        inputs: of each rank that there ever is.
        seed: rank r's generator begins at seed + r, and in the second job at LATER more.
        steps: how many.
    """

    LATER = 777
    FIRST = 3  # ranks in the first job

    def __init__(
        self, weight: torch.Tensor, inputs: list[torch.Tensor], seed: int, steps: int
    ) -> None:
        self.weight, self.inputs, self.seed, self.steps = weight, inputs, seed, steps

    def resumed(self, world: int) -> tuple[list[torch.Tensor], torch.Tensor, torch.Tensor]:
        """The second job on `world` ranks as if there had been no stop.

        Returns:
            Each rank's masks; the weights at its beginning, and at its end.
        """
        model = make_model(self.weight)
        generators = [self._generator(rank) for rank in range(self.FIRST)]
        self._train(model, generators)
        loaded = model.weight.detach().clone()
        generators += [self._generator(rank + self.LATER) for rank in range(self.FIRST, world)]
        return self._train(model, generators[:world]), loaded, model.weight.detach()

    def slips(self, rank: int) -> dict[str, Any]:
        """Known wrong masks of one rank after the resume, as lists."""
        begun = {
            "this rank goes on with the generator of the new job": self._generator(
                rank + self.LATER
            ),
            "its random numbers begin again at the seed: they must go on": self._generator(rank),
        }
        return {
            why: torch.stack([draw(self.inputs[rank], made) for _ in range(self.steps)]).tolist()
            for why, made in begun.items()
        }

    def _generator(self, more: int) -> torch.Generator:
        return torch.Generator().manual_seed(self.seed + more)

    def _train(self, model: nn.Linear, generators: list[torch.Generator]) -> list[torch.Tensor]:
        """Some steps; the masks of each rank."""
        masks: list[list[torch.Tensor]] = [[] for _ in generators]
        for _ in range(self.steps):
            gradients = []
            for inputs, generator, own in zip(self.inputs, generators, masks, strict=False):
                own.append(draw(inputs, generator))
                gradients.append(dropout_gradient(model, inputs, own[-1]))
            with torch.no_grad():
                model.weight -= RATE * torch.stack(gradients).mean(0)
        return [torch.stack(own) for own in masks]


def written_of(run: Run, entries: list[Any], weight: torch.Tensor) -> dict[str, torch.Tensor]:
    """The checkpoint: of entries with one name, that of the lowest index."""
    written: dict[str, torch.Tensor] = {}
    for rank, own in enumerate(entries):
        named = isinstance(own, dict) and all(isinstance(v, torch.Tensor) for v in own.values())
        run.true(
            named, "save_state returns no dict of named tensors", rank=rank, measured=repr(own)[:80]
        )
        written = {**own, **written}
    models = sum(value.nbytes for value in written.values() if value.shape == weight.shape)
    cause = "one model a rank, and all are the same: share the name"
    run.at_most(models, weight.nbytes, "what is written of the model, in bytes,", cause=cause)
    total = sum(value.nbytes for value in written.values())
    cause = "one model and one random state a rank are enough"
    what = "the checkpoint, in bytes,"
    run.at_most(total, models + len(entries) * STATE_BYTES + 256, what, cause=cause)
    return written


# --- 3: the order of the examples ----------------------------------------------------------------
def dealt(count: int, index: int, world: int, epoch: int) -> list[int]:
    """The examples of one rank in one epoch: every `world`-th of all, shuffled by the epoch."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(epoch))
    return torch.cat([order, order.repeat(world)[: -count % world]])[index::world].tolist()


def slope(weight: torch.Tensor, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The gradient of the mean squared error of a line."""
    return 2 * inputs.t() @ (inputs @ weight - targets) / len(targets)


def line_of(
    inputs: torch.Tensor, targets: torch.Tensor, size: int, epochs: range, world: int
) -> torch.Tensor:
    """The weights of a line, trained from zero on the epochs."""
    weight = torch.zeros(inputs.shape[1], dtype=inputs.dtype)
    for epoch in epochs:
        shares = [torch.tensor(dealt(len(targets), i, world, epoch)) for i in range(world)]
        for batches in zip(*(share.split(size) for share in shares), strict=True):
            slopes = [slope(weight, inputs[batch], targets[batch]) for batch in batches]
            weight = weight - RATE * torch.stack(slopes).mean(0)
    return weight


def orders_of(
    run: Run, rank: int, batches: list[list[int]], size: int, share: int, epochs: range
) -> list[list[int]]:
    """What one rank has seen, epoch by epoch; not the same each time."""
    steps = -(-share // size)
    sizes = [size] * (steps - 1) + [share - size * (steps - 1)]
    what = f"the sizes of the batches of {len(epochs)} epochs"
    run.equal([len(batch) for batch in batches], sizes * len(epochs), what, rank=rank)
    orders = [sum(batches[e * steps : (e + 1) * steps], []) for e in range(len(epochs))]
    run.true(
        any(order != orders[0] for order in orders),
        f"{len(epochs)} epochs, one order",
        rank=rank,
        expected="a different order in each epoch",
        measured=f"each of {list(epochs)} begins with {orders[0][:4]}",
    )
    return orders


def compare_order(
    run: Run, orders: list[list[int]], epochs: range, number: int, count: int
) -> None:
    """Every example is seen in an epoch, and on each rank in the order that was dealt for it."""
    epoch, missing = epochs[number], count - len(set(sum(orders, [])))
    run.true(
        not missing,
        f"epoch {epoch}: {missing} of {count} examples are seen by no rank",
        measured="others are seen twice",
        cause="the ranks do not agree on the epoch: they cut different orders",
    )
    others = {
        "counted from 0: a resumed job sees epochs again": number,
        "set too late: it holds from the next epoch on": epoch - 1 if number else 0,
    }
    for rank, own in enumerate(orders):
        likely = {why: dealt(count, rank, len(orders), other) for why, other in others.items()}
        what = f"the order of epoch {epoch}"
        run.equal(own, dealt(count, rank, len(orders), epoch), what, rank=rank, likely=likely)


# --- 4: an accuracy ------------------------------------------------------------------------------
def examples(
    inputs: torch.Tensor, weight: torch.Tensor, wrong: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """A validation set of which a model gets `wrong` wrong; of the first six, every other one.

    So every rank's part has right and wrong ones, and no two wrong ways to count agree by chance.
    """
    wrong = wrong.clone()
    wrong[:6] = torch.arange(len(wrong[:6])) % 2 == 0
    return inputs, ((inputs @ weight).argmax(1) + wrong.long()) % weight.shape[1]


def accuracies(right: torch.Tensor, epoch: int, world: int, rank: int) -> dict[str, float]:
    """Known wrong accuracies, where `right` says which examples are right."""
    n = len(right)
    cut = right[torch.tensor(dealt(n, 0, 1, epoch))[: n // world * world]]
    padded = [right[torch.tensor(dealt(n, i, world, epoch))] for i in range(world)]
    parts = [right[i::world] for i in range(world)]
    means = [float(part.double().sum()) / max(1, len(part)) for part in parts]
    found = {
        "the mean of the ranks' accuracies: a rank with fewer examples weighs as much": (
            sum(means) / world
        ),
        "this rank's own accuracy: the counts of all ranks must be added up": means[rank],
        "examples are counted twice, but divided by their true number": (
            sum(int(part.sum()) for part in padded) / n
        ),
        "0 is the accuracy of nothing: was every example left out?": 0.0,
    }
    if len(cut):
        found["the rest that does not divide is left out"] = float(cut.double().mean())
    # A slip that happens to give what the exhibit gives before its repair would mislead.
    first = float(torch.cat(padded).double().mean())
    return {why: value for why, value in found.items() if not abs(value - first) < 1e-9}
