"""Hang lab: repair six pieces of training loops in which some ranks wait forever.

Notebook 14. Each function below is right on one rank and looks reasonable, but hangs or dies on
several ranks. The grader shows what a flight recorder shows: the line and the call in which each
rank waits. Ask each time: which call did all ranks make last, which one comes next on each rank,
and why did the ranks decide differently?

One rule is behind all six: the ranks of a group make the same calls, in the same order, with
tensors of the same size; and every message that is sent is received. So all ranks that take part in
a call must know whatever decides about it.

Each docstring says what the function must return and what it may send. Change the functions as you
like, but keep their arguments and results. A barrier repairs nothing here: it is one more call that
some rank will not make. Use `course_lib.comm` for all communication.

Your answer may use `comm` of `course_lib`.
"""

from collections.abc import Sequence

import torch

from course_lib import comm
from course_lib.comm import Group


def keep_best(
    losses: torch.Tensor, weights: torch.Tensor, group: Group
) -> tuple[torch.Tensor, torch.Tensor]:
    """Keeps the weights of the best epoch. Seen: stops in the second epoch of most runs.

    Every rank validates on its own part of the data. An epoch is better than all before if its
    loss, averaged over the ranks, is smaller than the averaged loss of each of them. Then the
    weights of that epoch are kept, averaged over the ranks. The first epoch is always kept.
    Losses are finite.

    Args:
        losses: [E], this rank's loss after each epoch; other ranks have other losses.
        weights: [E, D], this rank's weights after each epoch. Both stay as they are.
        group: the ranks.

    Returns:
        The averaged loss of the best epoch, a scalar, and the weights kept, [D]; the same on every
        rank. It may send: an all-reduce of one number in each epoch, and one of D numbers in each
        epoch that is better than all before.
    """
    best = kept = losses.new_full((), float("inf"))
    for loss, weight in zip(losses, weights, strict=True):
        if loss < best:
            best = loss.clone()
            comm.all_reduce(best, group, "avg")
            kept = weight.clone()
            comm.all_reduce(kept, group, "avg")
    return best, kept


def sync_gradients(gradients: dict[str, torch.Tensor], dp: Group, tp: Group) -> None:
    """Synchronises gradients in place. Seen: stops on 2 × 2 ranks; dp or tp alone works.

    On a mesh dp × tp every gradient is averaged over dp. Those of norms (names that end in `norm`)
    are first added up over tp, since each rank has seen only its part of the sequence.

    Args:
        gradients: name to gradient, in the order in which this rank's backward happened to give
            them: on another rank the order may be another one. Names and shapes are the same on
            all ranks.
        dp: ranks with the same part of the model and other data.
        tp: ranks with the same data and other parts of the model.

    It may send: one all-reduce over dp of every gradient, and one over tp of those of norms.
    """
    for name, gradient in gradients.items():
        if name.endswith("norm"):
            comm.all_reduce(gradient, tp)
        comm.all_reduce(gradient, dp, "avg")


def sync_tied(gradient: torch.Tensor | None, pp: Group, ends: Group) -> None:
    """Adds up the gradient of a tied embedding, in place. Seen: works on 2 stages, hangs on 4.

    The first stage of a pipeline has the embedding, the last one uses the same weight as its output
    layer. Each has a part of the gradient; both need the sum.

    Args:
        gradient: on the first and the last stage their parts, of the same shape; None on others.
        pp: all stages; a rank's index is the number of its stage.
        ends: on the first and the last stage, the group of these two. The stages between have a
            group of their own under this name.

    It may send: one all-reduce of the gradient by the two ends, nothing by the other stages.
    """
    if gradient is not None:
        comm.all_reduce(gradient, pp)


def gather_predictions(mine: torch.Tensor, group: Group) -> torch.Tensor:
    """Collects the predictions for one batch. Seen: hangs or dies in the epoch's last batch.

    The last batch of an epoch need not divide by the number of ranks: some ranks have fewer rows
    than others, and some may have none.

    Args:
        mine: [rows, D], this rank's predictions; `rows` differs from rank to rank, D does not.
        group: the ranks.

    Returns:
        [sum of all rows, D], exactly the rows of rank 0, then those of rank 1, and so on; the same
        on every rank. It may send: an all-gather of one int64 a rank, and an all-gather of as many
        rows a rank as the rank with the most rows has.
    """
    everybody = mine.new_empty(group.size * mine.shape[0], mine.shape[1])
    comm.all_gather(everybody, mine, group)
    return everybody


def ring_scores(queries: torch.Tensor, keys: torch.Tensor, group: Group) -> torch.Tensor:
    """Attention scores against the keys of all ranks. Seen: stops at once, at any size.

    The keys go round a ring: in each step a rank uses the block it holds, passes it to the next
    rank and gets another one from the previous rank. So no rank ever holds more than two blocks.

    Args:
        queries: [T, D], this rank's.
        keys: [T, D], this rank's; they stay as they are.
        group: the ring.

    Returns:
        [N·T, T] for N ranks: block i, of T rows, is `keys of rank i @ queries.T`. It may send: N-1
        messages of one block, all to the next rank; no collective. All ranks send at the same time,
        or nearly so: if one waits for the other all round the ring, that takes N times as long.
    """
    scores = [queries] * group.size
    for step in range(group.size):
        scores[(group.index - step) % group.size] = keys @ queries.T
        if step < group.size - 1:
            incoming = torch.empty_like(keys)
            comm.recv(incoming, group.previous, group)
            comm.send(keys, group.next, group)
            keys = incoming
    return torch.cat(scores)


def gradient_of(weight: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
    """Given: the gradient of a linear model's squared error.

    Args:
        weight: [D].
        batch: [rows, D + 1]: inputs, and in the last column what should come out.

    Raises:
        ValueError: the batch is damaged.
    """
    if not batch.isfinite().all():
        raise ValueError("a damaged batch")
    inputs, targets = batch[:, :-1], batch[:, -1]
    return inputs.T @ (inputs @ weight - targets) / len(batch)


def train(
    weight: torch.Tensor, batches: Sequence[torch.Tensor], rate: float, group: Group
) -> tuple[torch.Tensor, int]:
    """Trains on, though some batches are damaged. Seen: hangs at the epoch's end, hours later.

    In each step every rank takes the gradient of its own batch, and the weight moves by -rate times
    the average over all ranks. If any rank's batch is damaged (`gradient_of` raises ValueError),
    all ranks leave this step out and go on with the next one.

    Args:
        weight: [D], the same on every rank.
        batches: this rank's, one a step; as many on every rank.
        rate: the learning rate.
        group: the ranks.

    Returns:
        The weight after the last step, and the number of steps left out; the same on every rank.
        It may send: in each step an all-reduce of one number and one of D numbers, or one of D + 1.
    """
    left_out = 0
    for batch in batches:
        try:
            gradient = gradient_of(weight, batch)
        except ValueError:
            left_out += 1
            continue
        comm.all_reduce(gradient, group, "avg")
        weight = weight - rate * gradient
    return weight, left_out
