"""What a planner is asked, checked before anything is searched.

Notebook: 15 Choosing a strategy; `course plan --model llama3-70b --gpus 512xH100 ...`.
Source: none.
Costs nothing.
The production version is a form with a hundred fields.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
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


def checked(
    name: str,
    gpus: str,
    batch: int,
    sequence: int | None,
    precision: str,
    hardware: Path | None = None,
) -> tuple[ModelConfig, Cluster]:
    """The model with its sequence, and the cluster, if there is anything to ask about them."""
    own = [read_node(hardware)] if hardware else []
    cluster = parse_cluster(gpus, {**NODES, **{node.gpu.name: node for node in own}})
    config = read_config(Path(name)) if name.endswith(".json") else model(name)
    config = replace(config, sequence=config.sequence if sequence is None else sequence)
    if batch < 1 or not 1 <= config.sequence <= LONGEST or precision not in PRECISIONS:
        raise Refusal(
            f"{batch} sequences of {config.sequence} tokens in {precision}",
            ", ".join(PRECISIONS),
            "a step has at least one sequence, of 1 to 2^27 tokens, and a precision of that list",
        )
    return config, cluster
