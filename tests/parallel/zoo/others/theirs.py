"""The zoo under torch's own wrappers: what becomes of each model there, measured, not expected."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from course_lib.comm import Group
from course_lib.ranks import Pool, RanksError
from tests.parallel.zoo.alone import Alone
from tests.parallel.zoo.harness import (
    STEPS,
    Verdict,
    compare_state,
    compare_step,
    spoil,
    verdict_of,
)
from tests.parallel.zoo.specimen import Specimen
from tests.parallel.zoo.wrappers import Rig, State, tensors, trained, whole

FOUND = Path(__file__).with_name("theirs.json")


def replicated(specimen: Specimen, model: nn.Module) -> Rig:
    wrapped = DistributedDataParallel(model, find_unused_parameters=specimen.unused)
    make, options = specimen.optimizer(model)
    return Rig(wrapped, make(trained(model), **options), whole(model), None, wrapped.no_sync)


def zero(specimen: Specimen, model: nn.Module) -> Rig:
    wrapped = DistributedDataParallel(model, find_unused_parameters=specimen.unused)
    make, options = specimen.optimizer(model)
    optimizer = ZeroRedundancyOptimizer(trained(model), make, **options)
    return Rig(wrapped, optimizer, whole(model), None, wrapped.no_sync)


def sharded(specimen: Specimen, model: nn.Module) -> Rig:
    for unit in [*specimen.submodules(model), model]:
        fully_shard(unit)
    make, options = specimen.optimizer(model)

    def state() -> State:
        held = model.state_dict()
        whole = {n: t.full_tensor() if isinstance(t, DTensor) else t for n, t in held.items()}
        return tensors(whole)

    return Rig(model, make(trained(model), **options), state, None, nullcontext)


THEIRS: dict[str, Callable[[Specimen, nn.Module], Rig]] = {
    "DDP": replicated,
    "ZeroRedundancyOptimizer": zero,
    "fully_shard": sharded,
}


def train(group: Group, name: str, wrapper: str) -> None:
    """On a rank: five steps under a wrapper of torch's, beside one process."""
    from tests.parallel.zoo.table import SPECIMENS

    specimen = SPECIMENS[name]
    torch.manual_seed(0)
    alone = Alone(specimen, group.size)
    model = specimen.build()
    if wrapper != "fully_shard":  # which takes each rank's weights as they are
        spoil(model, group)
    rig = THEIRS[wrapper](specimen, model)
    for step in range(STEPS):
        compare_step(specimen, rig, alone, group, step, specimen.close)
    compare_state(rig, alone, group, f"after step {STEPS}", specimen.close)


def found(pool: Pool, specimen: Specimen, wrapper: str) -> Verdict:
    """What becomes of it; `differs` is a wrong number without a word."""
    try:
        pool.run(train, specimen.name, wrapper, timeout=60)
    except RanksError as error:
        verdict = verdict_of(error)
        raised = [r for r in error.outcome.reports.values() if r["state"] == "raised"]
        if verdict.kind == "crashed":
            words = raised[0]["error"].strip().splitlines()[0] if raised else str(error)
            kind = "raises" if raised else "hangs"
            # Not into braces: a set is printed in another order each time.
            return Verdict(kind, re.split(r"[.;(] | \{|: the |\n", words)[0][:90].strip())
        return Verdict("differs") if verdict.kind == "different" else verdict
    return Verdict("equal")


def recorded() -> dict[str, dict[str, str]]:
    """By model and wrapper: `equal`, `differs`, or `raises` and `hangs` with the first words."""
    result: dict[str, dict[str, str]] = json.loads(FOUND.read_text())
    return result
