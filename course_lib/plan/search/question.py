"""What a planner is asked, checked before anything is searched.

Notebook: 15 Choosing a strategy; `course plan --model llama3-70b --gpus 512xH100 ...`.
Source: none.
Costs nothing.
The production version is a form with a hundred fields.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from pathlib import Path

from course_lib.layout import PRECISIONS
from course_lib.model.config import ModelConfig
from course_lib.plan.inputs.files import read_config, read_node
from course_lib.plan.inputs.hardware import NODES, Cluster, parse_cluster
from course_lib.plan.inputs.models import model
from course_lib.trace import Refusal

LONGEST = 2**27  # tokens of a sequence; cuts of longer ones are too many to be tried


@dataclass(frozen=True)
class Wishes:
    """What else may be asked.

    Attributes:
        layout: words of a layout to be judged.
        hardware: a file with a machine of one's own, which `gpus` may then name.
        tokens: to train on; 20 for each parameter that a token uses if 0.
        price: of a GPU for an hour.
    """

    layout: tuple[str, ...] = ()
    hardware: Path | None = None
    tokens: float = 0.0
    price: float = 0.0

    def __post_init__(self) -> None:
        for name, value in (("tokens", self.tokens), ("price", self.price)):
            if not 0 <= value < inf:
                raise Refusal(f"a bill with --{name}", f"{value:g}", "it is a number, not below 0")


def checked(
    name: str,
    gpus: str,
    batch: int,
    sequence: int | None,
    precision: str,
    hardware: Path | None = None,
) -> tuple[ModelConfig, Cluster]:
    """The model with its sequence, and the cluster, if there is anything to ask about them."""
    own = read_node(hardware) if hardware else None
    cluster = parse_cluster(gpus, {**NODES, own.gpu.name: own} if own else NODES)
    if own and cluster.gpu.name != own.gpu.name:
        raise Refusal(
            f"{gpus} with the machine of {hardware}",
            f"a machine whose GPU is called {own.gpu.name} there",
            f"--gpus names the GPU that is meant, as in --gpus '8x{own.gpu.name}'",
        )
    config = read_config(Path(name)) if name.endswith(".json") else model(name)
    config = replace(config, sequence=config.sequence if sequence is None else sequence)
    if batch < 1:
        raise Refusal("a global batch", f"{batch} sequences", "a step has at least one")
    if config.sequence > LONGEST:
        raise Refusal("sequences to plan for", f"{config.sequence} tokens", "the longest has 2^27")
    if precision not in PRECISIONS:
        raise Refusal(f"products in {precision}", ", ".join(PRECISIONS), "it is one of these")
    return config, cluster
