"""A training that survives its processes, for torchrun: saves every few steps, resumes by itself.

torchrun --standalone --nproc-per-node 2 --max-restarts 1 elastic_script.py FOLDER STEPS
"""

from __future__ import annotations

import argparse
import json
import os
import signal
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from course_lib.checkpoint import Training, hold_whole, hold_zero, resume_training, save_training
from course_lib.comm import Group, all_reduce
from course_lib.data import WindowSampler
from course_lib.parallel import Zero1

INTERVAL = 3  # steps between two checkpoints
TOKENS = torch.randint(29, (900,), generator=torch.Generator().manual_seed(5)).to(torch.uint8)


def train(
    group: Group, folder: Path, steps: int, dropout: float, dies: tuple[int, int] | None = None
) -> list[tuple[int, float]]:
    """Trains up to step `steps`, from the newest checkpoint if there is one.

    Args:
        group: all ranks.
        folder: of the checkpoints.
        steps: in all, those of earlier processes counted.
        dropout: rate; a rank's own random numbers.
        dies: an index, and in which step it kills itself.

    Returns:
        Number and mean loss of each step made here.
    """
    torch.manual_seed(group.index)
    model = nn.Sequential(nn.Embedding(29, 12), nn.Dropout(dropout), nn.Linear(12, 29)).double()
    optimizer: Any = Zero1(model.parameters(), torch.optim.AdamW, group, lr=0.02)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.95)
    sampler = WindowSampler(TOKENS, 8, 12, group.index, group.size)
    parts: Any = {"schedule": schedule, "sampler": sampler}
    training = Training(hold_whole(model), optimizer, hold_zero(model, optimizer), parts)
    resumed = resume_training(training, folder, group)
    losses = []
    for step in range(resumed.step if resumed else 0, steps):
        inputs, targets = next(sampler)
        loss = F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
        loss.backward()
        if dies == (group.index, step):
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        all_reduce(mean := loss.detach().clone(), group, "avg")
        losses.append((step, mean.item()))
        if (step + 1) % INTERVAL == 0:
            save_training(training, folder, group, step=step + 1)
    return losses


def main() -> None:
    """What a rank does under torchrun; index 0 writes what it saw into `FOLDER/attempt-N.json`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("steps", type=int)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--dies", type=int, nargs=2, help="index and step; in the first attempt")
    asked = parser.parse_args()
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    dist.init_process_group("gloo")
    group = Group.world()
    dies = tuple(asked.dies) if asked.dies and not attempt else None
    losses = train(group, asked.folder, asked.steps, asked.dropout, dies)
    if group.index == 0:
        (asked.folder / f"attempt-{attempt}.json").write_text(json.dumps(losses))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
