"""What the six functions of the hang lab must give: computed by one process, with their inputs."""

from __future__ import annotations

import torch

from course_lib.trace import wire_bytes

NUMBER = 8  # bytes of a float64

# Losses of ranks 0, 1, 2 after each epoch. Rank 1's own best is the first, so that on its own it
# improves never again; the average improves in epochs 1, 3 and 5, that of some ranks in all but the
# last, which is epoch 5 again.
LOSSES = [
    (10.0, 1.0, 10.0),
    (6.0, 8.0, 6.0),
    (5.0, 15.0, 5.0),
    (3.0, 9.0, 3.0),
    (4.0, 9.5, 2.0),
    (3.5, 8.5, 2.5),
    (1.0, 15.0, 5.0),
    (3.5, 8.5, 2.5),
]
# In which order backward gives the gradients on ranks 0 and 3, and on 1 and 2. The first two names
# make a circle of waiting ranks; after them, two of dp and two of tp are swapped.
ORDERS = (
    ("0.query", "0.norm", "1.query", "1.key", "1.norm", "2.norm", "normless_head"),
    ("0.norm", "0.query", "1.key", "1.query", "2.norm", "1.norm", "normless_head"),
)
# Which of the ranks 0, 1, 2 have a damaged batch in each step.
DAMAGED: tuple[tuple[int, ...], ...] = ((), (1,), (), (0, 2), (0,), (1,), ())


def reduced(count: int, size: int) -> list[int]:
    """Bytes that each of `size` ranks sends in an all-reduce of `count` numbers."""
    return [wire_bytes("all_reduce", count * NUMBER, size, i, NUMBER)[0] for i in range(size)]


def kept_epochs(losses: list[float]) -> list[int]:
    """The epochs whose loss is smaller than all before."""
    return [e for e, loss in enumerate(losses) if loss < min(losses[:e], default=float("inf"))]


def synced(tensors: list[torch.Tensor], name: str, rank: int) -> torch.Tensor:
    """One gradient after synchronisation, on ranks dp × tp = 2 × 2 of which tp is the inner."""
    first, second = tensors[rank % 2], tensors[rank % 2 + 2]
    whole = torch.stack(tensors).sum(0)
    return (whole if name.endswith("norm") else first + second) / 2


def misgathered(parts: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    """Wrong collections of uneven rows, each under its cause."""
    rows = [len(part) for part in parts]
    padded = [torch.cat([p, p.new_zeros(max(rows) - len(p), p.shape[1])]) for p in parts]
    return {
        "the padding is still there": torch.cat(padded),
        "rows were left out, to make all as short as the shortest": torch.cat(
            [part[: min(rows)] for part in parts]
        ),
    }


def trained(
    weight: torch.Tensor, batches: list[list[torch.Tensor]], rate: float, how: str = "right"
) -> torch.Tensor:
    """One process's weight after training.

    Args:
        weight: at the start.
        batches: of each rank, one a step.
        rate: the learning rate.
        how: `right`; else what is done in a step with a damaged batch: `zeros` counts it as a
            gradient of zero, `others` averages the sound ones, `stop` ends the training.
    """
    for step, bad in enumerate(DAMAGED):
        if bad and how == "stop":
            break
        if bad and how == "right":
            continue
        sound = [rank for rank in range(len(batches)) if rank not in bad]
        total = torch.zeros_like(weight)
        for rank in sound:
            inputs, targets = batches[rank][step][:, :-1], batches[rank][step][:, -1]
            total += inputs.t() @ (inputs @ weight - targets) / len(inputs)
        weight = weight - rate * total / (len(sound) if how == "others" else len(batches))
    return weight


def mistrained(
    weight: torch.Tensor, batches: list[list[torch.Tensor]], rate: float
) -> dict[str, torch.Tensor]:
    """Wrong weights after training, each under its cause."""
    zeros, others, stop = (
        trained(weight, batches, rate, how) for how in ("zeros", "others", "stop")
    )
    return {
        "a damaged batch was counted as a gradient of zero: the step must be left out": zeros,
        "the step was made with the sound batches alone: it must be left out": others,
        "training ended with the first damaged batch": stop,
        "the weight has not moved: every step was left out": weight,
    }
