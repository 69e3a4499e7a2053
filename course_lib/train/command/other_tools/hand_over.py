"""Hands a run's weights over to transformers: a folder with config.json and the weights.

    python -m course_lib.train.command.other_tools.hand_over runs/mine out

Costs reading and writing the model once, in this process.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path

from course_lib.checkpoint import find_checkpoint
from course_lib.checkpoint.formats.safetensors import export_safetensors
from course_lib.trace import Refusal
from course_lib.train.command.folder import CHECKPOINTS, read_config
from course_lib.train.command.other_tools.hugging_face import WEIGHTS, their_config, their_name


def export(run: Path, out: Path) -> int:
    """Writes the newest checkpoint of a run's folder as config.json and model.safetensors.

    Returns:
        The step that it is of.
    """
    about = their_config(read_config(run).model)
    checkpoint = find_checkpoint(run / CHECKPOINTS)
    out.mkdir(parents=True, exist_ok=True)
    name = partial(their_name, family=about["model_type"])
    export_safetensors(checkpoint, out / WEIGHTS, rename=name)
    (out / "config.json").write_text(json.dumps(about, indent=1))
    return checkpoint.manifest.step


def main(words: list[str]) -> int:
    """Runs the command; returns its exit code."""
    if len(words) != 2:
        print(
            "usage: python -m course_lib.train.command.other_tools.hand_over RUN OUT",
            file=sys.stderr,
        )
        return 2
    try:
        step = export(Path(words[0]), Path(words[1]))
    except (Refusal, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{words[1]}: the weights after step {step}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
