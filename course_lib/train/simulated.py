"""One step of a training run on a simulated cluster: how long it takes, and what each stage holds.

Notebook: 13 The mesh, 15 Choosing a strategy.
Source: `course_lib.cluster`; torchtitan estimates a step's memory in the same way.
Costs one program for each rank of the pipeline: replicas and the ranks of tp do the same.
The production version starts the run, and looks.
"""

from __future__ import annotations

import torch

from course_lib.cluster import Failed, simulate
from course_lib.cluster.memory import in_words
from course_lib.comm import Group, Mesh
from course_lib.model import AdamW, Transformer
from course_lib.trace import Refusal
from course_lib.train.command.config import RunConfig
from course_lib.train.layout import lay_out, make_optimizers, make_state
from course_lib.train.step import own_micro_batches, train_step

EQUAL = ("dp", "tp")  # ranks that differ on these axes alone do the same


def one_step(group: Group, config: RunConfig) -> float:
    """A step of a run that has made some already, on tokens that are all alike; its seconds."""
    dtype = torch.float64 if config.weights == "fp64" else torch.float32
    model = lay_out(
        Transformer(config.model).to(group.device, dtype),
        Mesh(group, config.degrees),
        config.make_schedule(),
        sequence=config.sequence_parallel,
        precision=config.precision,
        recompute=config.recompute,
        zero=config.zero,
    )
    cap = {"cap": config.bucket_mib << 20} if config.zero in (1, 2) else {}
    optimizers = make_optimizers(model, AdamW, **cap)
    make_state(optimizers)
    tokens = torch.zeros(config.batch, config.sequence, dtype=torch.int64)
    begin = group.ledger.clock()
    with group.ledger.span("step 1"):
        train_step(model, own_micro_batches(tokens, tokens, model), optimizers, config.max_norm)
    return group.ledger.clock() - begin


def equal_ranks(config: RunConfig) -> str:
    """Which ranks of a run do the same, as `pp4 dp8* tp2*`."""
    even = config.batch % (config.degrees.get("dp", 1) * config.make_schedule().micro_batches) == 0
    stars = {axis: "*" if axis in EQUAL and even else "" for axis in config.degrees}
    return " ".join(f"{axis}{size}{stars[axis]}" for axis, size in config.degrees.items())


def simulated_step(config: RunConfig, cluster: str) -> str:
    """What a step of the run takes on a cluster, in a line for all and one for each distinct rank.

    Raises:
        Refusal: there is no such cluster, it is too small, a rank does not fit, or its GPU has no
            units for what is computed.
    """
    try:
        found = simulate(one_step, config.world, config, cluster=cluster, equal=equal_ranks(config))
    except Failed as error:
        raise error.cause if isinstance(error.cause, Refusal) else error from None
    seconds = max(found.values.values())
    tokens = config.batch * config.sequence
    lines = [f"a step on {config.world} ranks of {cluster}: {seconds:.4g} s, "
             f"{tokens / seconds:,.0f} tokens/s"]  # fmt: skip
    for rank, memory in found.memories.items():
        lines.append(f"rank {rank}: {memory.peak / 1e9:.2f} GB ({in_words(memory.at_peak)})")
    return "\n".join(lines)
