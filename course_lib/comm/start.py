"""Where a rank computes, and how a script that torchrun started finds the other ranks.

Notebook: 00 Ranks and the ledger; every lesson's last run.
Source: torchrun's environment variables (torch.distributed.run).
Costs a connection of each rank to the store, and to the ranks that it talks to.
The production version binds NCCL to the device here already, so that it can split communicators.

Where each rank has a GPU of its own there are two backends in each group: NCCL for tensors on GPUs,
gloo for those on the CPU, such as a count of tokens, or a lesson's tensors that stay there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from course_lib.comm.errors import CommError
from course_lib.comm.group import Group
from course_lib.comm.torch_transport import all_ranks


def choose_device(wanted: str, rank: int, world_size: int) -> torch.device:
    """The device of a rank: its own GPU if there is one for each rank, else the CPU.

    Args:
        wanted: `auto`; `cpu`; `cuda` (ranks share GPUs if there are fewer, over gloo).
        rank: the rank's index on this machine.
        world_size: how many ranks there are on this machine.

    Raises:
        CommError: GPUs are wanted and there is none, or it is another word.
    """
    gpus = torch.cuda.device_count() if wanted != "cpu" else 0
    if wanted not in ("auto", "cpu", "cuda"):
        why = "one of these is meant"
        raise CommError(f"the device {wanted!r}", "auto, cpu and cuda", why)
    if wanted == "cuda" and not gpus:
        why = "nothing is computed elsewhere in silence; leave COURSE_DEVICE unset for the CPU"
        raise CommError("the device cuda", "no GPU that torch can use here", why)
    if gpus >= world_size or wanted == "cuda":
        return torch.device("cuda", rank % gpus)
    return torch.device("cpu")


def choose_backend(device: torch.device, world_size: int) -> str:
    """NCCL for GPUs beside gloo if each rank of this machine has a GPU of its own, else `gloo`."""
    alone = device.type == "cuda" and torch.cuda.device_count() >= world_size
    return "cpu:gloo,cuda:nccl" if alone else "gloo"


@contextmanager
def start_from_environment() -> Iterator[Group]:
    """The group of all ranks that torchrun started, or of this process alone; ends with the block.

    COURSE_DEVICE (`auto`, `cpu`, `cuda`) says where to compute, as in the notebooks.

    Raises:
        CommError: COURSE_DEVICE asks for what there is not.
    """
    local = int(os.environ.get("LOCAL_RANK", "0"))
    on_this_node = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    device = choose_device(os.environ.get("COURSE_DEVICE", "auto"), local, on_this_node)
    backend = choose_backend(device, on_this_node)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    with all_ranks(backend, alone="RANK" not in os.environ):
        yield Group.world(device=device)
