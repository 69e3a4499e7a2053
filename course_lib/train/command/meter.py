"""What a step cost: tokens and operations a second, memory, and the wait for the slowest rank.

Notebook: 14 Profiling and debugging.
Paper: Chowdhery et al., "PaLM" (2022), appendix B, for model FLOP/s utilization (MFU).
Costs an all-gather of seven numbers a rank and step.
The production version (Megatron-LM's straggler detection) times kernels, and only now and then.

    waited    seconds that the ranks stood still in communication, on average, beyond the one that
              stood still least; that one, `slowest`, is whom they waited for
    mfu       operations that the model needs (`flops_per_token`, nothing recomputed), as a part of
              what the devices could have done
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterable
from typing import Any

import torch

from course_lib.comm import Group, all_gather
from course_lib.model import flops_per_token
from course_lib.model.moe import moe_layers
from course_lib.trace import Event
from course_lib.trace.memory import held_by_class
from course_lib.train.mesh_model import MeshModel
from course_lib.train.step import Optimizers

MIB = 1 << 20
CLASSES = ("parameters", "gradients", "optimizer state")


class Meter:
    """Measures steps.

    Args:
        model: on its mesh.
        optimizers: the model's.
        peak: FLOP/s of a device, for MFU; 0 for no MFU.
    """

    def __init__(self, model: MeshModel, optimizers: Optimizers, peak: float = 0.0) -> None:
        self.model, self.optimizers, self.peak = model, optimizers, peak
        self.group: Group = model.everyone
        self.load = ExpertLoad(model)

    def measure(self, events: Iterable[Event], tokens: int, seconds: float) -> dict[str, Any]:
        """The numbers of a step that is over, the same on every rank; collective.

        Args:
            events: of this rank in the step.
            tokens: of the whole batch.
            seconds: that the step took here.
        """
        stages = self.model.pipeline.stages.values()
        parameters = [p for stage in stages for p in stage.parameters()]
        held, peak = held_by_class(parameters, self.optimizers), peak_bytes(self.group.device)
        mine = [stood_still(events), seconds, self.load.take(), *held.values(), peak]
        rows = self._of_all(mine)
        waited, longest = [row[0] for row in rows], max(row[1] for row in rows)
        rate = tokens / longest
        found = {
            "tokens_per_second": round(rate, 1),
            "waited": round(sum(waited) / len(waited) - min(waited), 5),
            "slowest": waited.index(min(waited)),
        }
        for place, name in enumerate((*CLASSES, "peak"), 3):
            most = max(row[place] for row in rows)
            found[f"{name.replace(' ', '_')}_mib"] = round(most / MIB, 2)
        if self.peak:
            done = flops_per_token(self.model.config) * rate
            found["mfu"] = round(done / (self.peak * self.group.size), 5)
        if self.model.config.moe is not None:
            found["expert_load"] = round(max(row[2] for row in rows), 3)
        return found

    def _of_all(self, mine: list[float]) -> list[list[float]]:
        numbers = torch.tensor(mine, dtype=torch.float64, device=self.group.device)
        everyone = numbers.new_zeros(self.group.size * len(mine))
        all_gather(everyone, numbers, self.group)
        rows: list[list[float]] = everyone.view(self.group.size, len(mine)).tolist()
        return rows


class ExpertLoad:
    """How uneven the experts were used: the busiest one's tokens over the mean, the worst layer's.

    Args:
        model: whose routers are listened to.
    """

    def __init__(self, model: MeshModel) -> None:
        self.counts: dict[int, torch.Tensor] = {}
        for stage in model.pipeline.stages.values():
            for layer in moe_layers(stage):
                layer.router.register_forward_hook(self._listen)

    def _listen(self, router: Any, _: Any, routing: Any) -> None:
        counts = routing.counts.detach()
        self.counts[id(router)] = self.counts.get(id(router), torch.zeros_like(counts)) + counts

    def take(self) -> float:
        """The number since the last call; 0 without experts. Of this rank's tokens."""
        worst = max((float(c.max() / c.double().mean()) for c in self.counts.values()), default=0.0)
        self.counts = {}
        return worst


def stood_still(events: Iterable[Event]) -> float:
    """Seconds in which a rank did nothing but wait for communication."""
    ended = [event for event in events if event.parent < 0 and event.end is not None]
    return sum((e.end or 0) - (e.begin if e.waited is None else e.waited) for e in ended)


def peak_bytes(device: torch.device) -> int:
    """The most that was in use: of the GPU's allocator, or of the process where there is none."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
