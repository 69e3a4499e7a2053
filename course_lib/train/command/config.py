"""All options of a training run as one record, for the command line and for a notebook.

Notebook: 13 3D parallelism, 16 Capstone.
Source: the words are those of Megatron-LM's and torchtitan's command lines, shortened.
Costs nothing; `train/command/check.py` says what can be combined.
The production version (Megatron-LM) has hundreds of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from math import prod
from pathlib import Path
from shlex import quote
from typing import Any

from course_lib.comm.mesh import AXES
from course_lib.data import vocabulary_of
from course_lib.layout import Layout
from course_lib.model import ModelConfig, MoEConfig
from course_lib.schedule import SCHEDULES, Schedule, make_schedule
from course_lib.train.command.other_tools.model_file import read_model
from course_lib.train.compute import DTYPES

# Words of the command line, and the names that they stand for.
WORDS = {kind.word: name for name, kind in SCHEDULES.items()}
RECOMPUTE = ("none", "full", "selective")
PRECISIONS = tuple(DTYPES)
WIDTH = 90  # columns of a command, as of the code in a notebook


def option(
    default: Any,
    about: str,
    choices: tuple[Any, ...] = (),
    *,
    flag: str = "",
    least: float | None = None,
    above: float | None = None,
    below: float | None = None,
    most: float | None = None,
    endless: bool = False,
) -> Any:
    """A field that is an option of the command line as well.

    Args:
        default: its value where nothing is said.
        about: what it is, for --help.
        choices: the words that there are; any if empty.
        flag: its name on the command line, if that is another than the field's.
        least: the smallest number that can be.
        above: a number that it must be larger than.
        below: a number that it must be smaller than.
        most: the largest number that can be.
        endless: whether it may be infinite.
    """
    limits = {"least": least, "above": above, "below": below, "most": most, "endless": endless}
    return field(
        default=default, metadata={"about": about, "choices": choices, "flag": flag, **limits}
    )


@dataclass(frozen=True)
class RunConfig:
    """A run of `train`; each field is an option of `python -m course_lib.train.run`."""

    pp: int = option(1, "ranks of the pipeline", least=1)
    dp: int = option(1, "replicas", least=1)
    ep: int = option(1, "ranks that share the experts", least=1)
    cp: int = option(1, "ranks that share each sequence", least=1)
    tp: int = option(1, "ranks that share each layer", least=1)
    zero: int = option(0, "1 cuts optimizer state, 2 gradients too, 3 parameters too", (0, 1, 2, 3))
    micro_batches: int = option(1, "that each rank's part of a batch is cut into", least=1)
    schedule: str = option("1f1b", "of the pipeline", tuple(WORDS))
    chunks: int = option(2, "stages on a rank, of the interleaved schedule", least=1)
    sequence_parallel: bool = option(False, "cut what is between tp's regions along the sequence")
    precision: str = option("fp32", "what is computed in", PRECISIONS)
    weights: str = option("fp32", "what weights and gradients are kept in", ("fp32", "fp64"))
    recompute: str = option("none", "what a block computes again in backward", RECOMPUTE)

    model_file: str = option(
        "", "a model's shape as JSON: its own keys, or a Hugging Face config.json", flag="model"
    )
    weights_from: str = option("", "a folder with safetensors that the training begins with")
    layers: int = option(4, "blocks", least=1)
    hidden: int = option(128, "width of the residual stream", least=1)
    heads: int = option(4, "query heads", least=1)
    kv_heads: int = option(4, "key-value heads", least=1)
    ffn: int = option(352, "width inside the feed-forward network, or inside an expert", least=1)
    sequence: int = option(128, "tokens of a window", least=1)
    tied: bool = option(False, "the output layer is the embedding")
    experts: int = option(0, "in place of every feed-forward network; 0 for a dense model", least=0)
    top_k: int = option(2, "experts that a token uses", least=1)

    steps: int = option(200, "updates in all, also of a run that is resumed", least=1)
    batch: int = option(32, "windows in an update, over all ranks", least=1)
    rate: float = option(
        3e-3, "learning rate after the warm-up; falls to a tenth along a cosine", above=0
    )
    warmup: int = option(20, "steps of linear warm-up", least=0)
    max_norm: float = option(1.0, "gradients are clipped to", above=0, endless=True)
    decay: float = option(0.1, "weight decay", least=0)
    beta1: float = option(0.9, "of Adam's first moment", least=0, below=1)
    beta2: float = option(0.95, "of Adam's second moment", least=0, below=1)
    bucket_mib: int = option(25, "of a bucket of ZeRO-1 and 2", least=1)
    scale_power: int = option(16, "the first loss scale of fp16 is 2 to this", least=0, most=127)
    scale_window: int = option(2000, "updates without overflow until it doubles", least=1)
    seed: int = option(0, "of weights and of the order of the windows", least=0)
    data: str = option(
        "", "a folder of one's own: text files, packed tokens, or a Hugging Face data set"
    )
    mask_documents: bool = option(False, "a token sees its own document only, not the whole window")
    corpus_mib: int = option(
        12, "of text to read: of --data, or else of the course's copy of Python's library", least=1
    )

    folder: str = option("", "for the log, checkpoints and traces; nothing is written without one")
    save_every: int = option(0, "steps; 0 saves nothing", least=0)
    keep: int = option(2, "newest checkpoints that stay", least=1)
    resume: bool = option(False, "go on from the newest checkpoint in the folder")
    validate_every: int = option(0, "steps; 0 never computes the loss of the other text", least=0)
    validate_batches: int = option(
        4, "of the other text, each as large as a batch; at most all of it", least=1
    )
    peak_tflops: float = option(0.0, "of a device, that MFU is a part of; 0 for no MFU", least=0)
    record: bool = option(False, "write down each call's bits, to find where two runs part")
    trace_steps: int = option(
        0, "last steps whose calls go to ledgers.json and trace.json", least=0
    )

    @property
    def degrees(self) -> dict[str, int]:
        """The size of each axis, outermost first."""
        return {axis: getattr(self, axis) for axis in AXES}

    @property
    def world(self) -> int:
        """How many ranks the run needs."""
        return prod(self.degrees.values())

    @property
    def model(self) -> ModelConfig:
        """The model's shape.

        Raises:
            Refusal: its sizes do not fit together.
        """
        vocabulary = vocabulary_of(self.data)
        if self.model_file:
            return read_model(Path(self.model_file), self.sequence, vocabulary)
        moe = MoEConfig(self.experts, self.top_k) if self.experts else None
        return ModelConfig(
            self.layers,
            self.hidden,
            self.heads,
            self.kv_heads,
            self.ffn,
            vocabulary,
            sequence=self.sequence,
            tied=self.tied,
            moe=moe,
        )

    @property
    def layout(self) -> Layout:
        """How the run is spread over its ranks; the words and numbers must be known ones."""
        return Layout(
            **self.degrees,
            micro_batches=self.micro_batches,
            schedule=WORDS[self.schedule],
            chunks=self.chunks,
            zero=self.zero,
            sequence=self.sequence_parallel,
            recompute=self.recompute,
            precision=self.precision,
            micro_batch_size=max(1, self.batch // (self.dp * self.ep * self.micro_batches)),
        )

    def make_schedule(self) -> Schedule:
        """The pipeline's schedule.

        Raises:
            ScheduleError: there is none of this name, or not for these numbers.
        """
        name = WORDS.get(self.schedule, self.schedule)
        return make_schedule(name, self.pp, self.micro_batches, self.chunks)

    def command(self) -> str:
        """What to type for this run, in lines that end with a backslash where they are long."""
        start = "python -m" if self.world == 1 else f"torchrun --nproc-per-node {self.world} -m"
        lines = [f"{start} course_lib.train.run"]
        for option in self._options():
            if len(lines[-1]) + len(option) < WIDTH:
                lines[-1] += f" {option}"
            else:
                lines.append(f"    {option}")
        return " \\\n".join(lines)

    def options(self) -> str:
        """The options that are not at their default."""
        return " ".join(self._options())

    def _options(self) -> Iterator[str]:
        for each in fields(self):
            value = getattr(self, each.name)
            name = flag_of(each.name)
            if value != each.default:
                between = "=" if str(value).startswith("-") else " "  # or it would be an option
                yield f"--{name}" if value is True else f"--{name}{between}{quote(str(value))}"


def flag_of(name: str) -> str:
    """An option's name on the command line, without its dashes."""
    found = next(each for each in fields(RunConfig) if each.name == name)
    return str(found.metadata["flag"] or name).replace("_", "-")
