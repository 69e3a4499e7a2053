"""museum_state: four public bugs about state that the ranks must share, or must not share.

Notebook 14. Some of what a training run keeps must be the same on every rank, some must differ, and
either way nothing says so when it goes wrong. Each exhibit below is a small version of a bug that
people really had. The code reads well and is wrong. Its docstring says what the function must do,
what its victims saw, and what happens in one small run, the example run. The cause is for you
to find. For each exhibit:

1. Name it. Fill in `FAULT[exhibit]` with two things.
   - The line at fault, copied from the starter (blanks do not count). Where a line is missing, take
     the line that it has to stand before. Where two lines share the blame, either will do.
   - The ranks, as a tuple such as `(2, 3)`, that do the wrong thing or have a wrong result in the
     example run; `"all"` if none of them is right. A rank that does what the docstring asks is
     right, even if it waits for the others in vain afterwards.
2. Repair it. Change what you like inside the function; its arguments and its result stay.

The two are graded separately: a patch counts without a name, and a name without a patch. Grade the
file before you change it: the card shows each symptom again, as numbers.

You may use all of `course_lib.comm` and `course_lib.data`. The functions must work on any number of
ranks and for any sizes.
"""

from collections.abc import Callable, Iterator, Mapping

import torch
from torch import nn

from course_lib import comm
from course_lib.comm import Group
from course_lib.data import shard_indices

FAULT: dict[str, tuple[str, str | tuple[int, ...]]] = {
    # BEGIN SOLUTION
    #: "sharded_step": ("", ()),
    #: "save_state": ("", ()),
    #: "train_epochs": ("", ()),
    #: "evaluate": ("", ()),
    "sharded_step": ("overflow = not bool(gradient.isfinite().all())", (0, 1, 3)),
    "save_state": ('entries["random"] = generator.get_state()', (1, 2, 3)),
    "train_epochs": ("for batch in torch.tensor(list(sampler)).split(size):", "all"),
    "evaluate": ("mine = shard_indices(len(targets), group.index, group.size, epoch)", "all"),
    # END SOLUTION
}


# --- 1 -------------------------------------------------------------------------------------------
def sharded_step(
    weights: torch.Tensor, gradient: torch.Tensor, scale: float, rate: float, group: Group
) -> float:
    """Exhibit 1: one SGD step of a sharded optimizer, with a loss scale.

    The loss was multiplied by `scale` before its backward, so that small gradients survive fp16.
    Each rank has one part of the gradient, and moves the same part of the weights; then the parts
    are put together, and all ranks have all the new weights. If a number of the gradient is
    infinite or NaN, the step is skipped: all weights stay as they are, and the scale is halved.

    Seen in: facebookresearch/fairscale #180 (a loss scaler that skips steps, and a sharded
    optimizer): jobs could stand still in the optimizer's step.

    The example run: 4 ranks. For some steps all logs say scale 65536. Then rank 2 says 32768 and is
    in the next step; ranks 0, 1 and 3 are still in this one, and wait.

    Args:
        weights: [n], the same on every rank; changed in place. `group.size` divides n.
        gradient: [n / size], this rank's part, of the scaled loss.
        scale: the loss scale, the same on every rank.
        rate: learning rate.
        group: the ranks that hold the parts, in the order of their index.

    Returns:
        The scale of the next step, the same on every rank.
    """
    # BEGIN SOLUTION
    #: overflow = not bool(gradient.isfinite().all())
    #: if overflow:
    #:     return scale / 2
    #: part = weights.chunk(group.size)[group.index].clone()
    #: part -= rate * gradient / scale
    #: comm.all_gather(weights, part, group)
    #: return scale
    overflow = (~gradient.isfinite()).any().to(torch.float32)
    comm.all_reduce(overflow, group, "max")
    if overflow:  # mutate: same
        return scale / 2
    part = weights.chunk(group.size)[group.index].clone()  # mutate: same
    part -= rate * gradient / scale
    comm.all_gather(weights, part, group)
    return scale
    # END SOLUTION


# --- 2 -------------------------------------------------------------------------------------------
def save_state(
    model: nn.Module, generator: torch.Generator, group: Group
) -> dict[str, torch.Tensor]:
    """Exhibit 2: what this rank puts into a checkpoint of replicas.

    A checkpoint is one dict of named tensors. Entries that have the same name on several ranks are
    taken for copies of one thing, and only one of them is written: that of the lowest index. So the
    model, which is the same on every rank, takes the space of one model.

    A job that is resumed goes on as if it had not been stopped: every rank draws the same dropout
    masks that it would have drawn. A rank that was not there before keeps the generator it has.

    Seen in: NVIDIA/Megatron-LM #6858 (which random state a rank gets back at a resume). A model of
    120B parameters: after a resume, one of the random states was not the saved one on 252 of 256
    ranks.

    The example run: 4 ranks. Before the checkpoint the masks of any two ranks agree in 50 % of
    their places, as two coins do; after the resume, in 100 %.

    Args:
        model: the same on every rank.
        generator: this rank's, from which its dropout masks are drawn.
        group: the replicas.

    Returns:
        Entries of the checkpoint.
    """
    # BEGIN SOLUTION
    #: entries = {f"model/{name}": value for name, value in model.state_dict().items()}
    #: entries["random"] = generator.get_state()
    #: return entries
    entries = {f"model/{name}": value for name, value in model.state_dict().items()}
    entries[f"random/{group.index}"] = generator.get_state()
    return entries
    # END SOLUTION


def load_state(
    entries: Mapping[str, torch.Tensor], model: nn.Module, generator: torch.Generator, group: Group
) -> None:
    """Exhibit 2: goes on from a checkpoint; named and repaired together with `save_state`.

    Args:
        entries: the checkpoint, the same on every rank.
        model: with other weights; gets those of the checkpoint.
        generator: this rank's, in another state.
        group: the replicas; there may be more or fewer than before.
    """
    # BEGIN SOLUTION
    #: own = {name: entries[f"model/{name}"] for name in model.state_dict()}
    #: model.load_state_dict(own)
    #: generator.set_state(entries["random"])
    own = {name: entries[f"model/{name}"] for name in model.state_dict()}
    model.load_state_dict(own)  # mutate: same
    if f"random/{group.index}" in entries:
        generator.set_state(entries[f"random/{group.index}"])
    # END SOLUTION


# --- 3 -------------------------------------------------------------------------------------------
class EpochSampler:
    """Given, and right: deals shuffled examples to the ranks, as torch's DistributedSampler does.

    Args:
        count: how many examples there are.
        group: the ranks that share them.

    Attributes:
        epoch: decides the order that the next `iter` gives; 0 at first.
    """

    def __init__(self, count: int, group: Group) -> None:
        self.count, self.group, self.epoch = count, group, 0  # mutate: same

    def set_epoch(self, epoch: int) -> None:
        """Sets `epoch`."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        order = shard_indices(self.count, self.group.index, self.group.size, self.epoch)
        return iter(order.tolist())


def train_epochs(
    step: Callable[[torch.Tensor], None], count: int, size: int, epochs: range, group: Group
) -> None:
    """Exhibit 3: trains some epochs; in each, every rank sees its part of the shuffled examples.

    The examples of epoch e, and their order, are those that `EpochSampler` deals for e. A job that
    is resumed is given the epochs that are left, such as `range(2, 5)`: it sees what it would have
    seen without a stop.

    Seen in: pytorch/pytorch #31771 (a sampler that seems not to shuffle). 22 examples, batches of
    5, `shuffle=True`, and a loop that prints what it is given: all epochs print the same batches in
    the same order.

    The example run: 4 ranks, three epochs. Each rank sees its own quarter of the examples, and in
    the second and third epoch the same quarter, in the same order.

    Args:
        step: trains one batch, an int64 tensor of example numbers; it has an all-reduce in it.
        count: how many examples there are.
        size: of a batch of one rank; the last batch of an epoch may be smaller.
        epochs: numbers of the epochs to train.
        group: the ranks.
    """
    # BEGIN SOLUTION
    #: sampler = EpochSampler(count, group)
    #: for _ in epochs:
    #:     for batch in torch.tensor(list(sampler)).split(size):
    #:         step(batch)
    sampler = EpochSampler(count, group)
    for epoch in epochs:
        sampler.set_epoch(epoch)
        for batch in torch.tensor(list(sampler)).split(size):
            step(batch)
    # END SOLUTION


# --- 4 -------------------------------------------------------------------------------------------
def evaluate(
    model: Callable[[torch.Tensor], torch.Tensor],
    inputs: torch.Tensor,
    targets: torch.Tensor,
    epoch: int,
    group: Group,
) -> float:
    """Exhibit 4: the part of a validation set that a model gets right, its accuracy.

    The ranks share the work: with n examples on N ranks, none gives the model more than n / N rows,
    rounded up. The model's weights are sharded, so its forward has collectives: each rank has to
    call it exactly once, even if there are fewer examples than ranks.

    Seen in: pytorch/pytorch #25162 (wrong validation accuracy with a distributed sampler), and
    later in pytorch/vision #4559, which warns that reported accuracies may be off by it: one model
    has another accuracy on another number of ranks, and even when it is evaluated twice.

    The example run: 10 examples, 7 of them right, 4 ranks. Each of them says 0.75; 1 rank and 2
    ranks say 0.7.

    Args:
        model: gives [rows, classes] for [rows, features].
        inputs: [n, features], the same on every rank.
        targets: [n], the right classes.
        epoch: after which epoch of the training this is.
        group: the ranks.

    Returns:
        A number between 0 and 1, the same on every rank.
    """
    # BEGIN SOLUTION
    #: mine = shard_indices(len(targets), group.index, group.size, epoch)
    #: right = model(inputs[mine]).argmax(1) == targets[mine]
    #: score = torch.tensor([float(right.sum()), len(mine)], dtype=torch.float64)
    #: comm.all_reduce(score, group)
    #: return float(score[0] / score[1])
    mine = torch.arange(group.index, len(targets), group.size)
    right = model(inputs[mine]).argmax(1) == targets[mine]
    score = torch.tensor([float(right.sum()), len(mine)], dtype=torch.float64)  # mutate: same
    comm.all_reduce(score, group)
    return float(score[0] / score[1])
    # END SOLUTION
