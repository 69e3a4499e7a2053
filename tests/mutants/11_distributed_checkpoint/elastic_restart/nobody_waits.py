"""mutant: cannot load what it takes for a complete checkpoint"""

from pathlib import Path
from typing import Any

import torch

from course_lib.comm import Group


def train(group: Group, folder: Path, job: Any, steps: int, interval: int) -> None:
    """Trains, from the newest complete checkpoint if there is one, and saves now and then."""
    saved = [int(path.stem) for path in folder.glob("*.complete")]
    if saved:
        newest = folder / str(max(saved))
        size, whole = torch.load(newest / "whole.pt")
        own = torch.load(newest / f"{group.index}.pt") if group.index < size else None
        job.restore(whole, own)
    while job.step < steps:
        job.make_step()
        if job.step % interval == 0:
            unfinished = folder / str(job.step)
            unfinished.mkdir(exist_ok=True)
            whole, own = job.capture()
            torch.save(own, unfinished / f"{group.index}.pt")
            if group.index == 0:
                torch.save((group.size, whole), unfinished / "whole.pt")
            if group.index == 0:
                (folder / f"{job.step}.complete").touch()
