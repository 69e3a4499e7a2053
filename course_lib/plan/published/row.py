"""A published run, as a row of a table, in the words of the simulator; or why it cannot be.

Notebook: 15 Choosing a strategy (the planner against published runs).
Source: the columns are those of plan/data/runs.csv, each row with its source.
Costs nothing.
The production version asks the authors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from course_lib.layout import PRECISIONS, RECOMPUTE, Layout
from course_lib.model.config import ModelConfig
from course_lib.plan.inputs.hardware import Cluster, cluster
from course_lib.plan.inputs.recipe import usual_recipe
from course_lib.plan.inputs.software import Software
from course_lib.plan.time import flops
from course_lib.schedule import KINDS
from course_lib.trace import Refusal

Row = Mapping[str, object]  # texts or numbers by column; what is not known is empty or missing
Texts = Mapping[str, str]
GPU_NAMES = {
    "A100-40": "A100-40",
    "A100-80": "A100-80",
    "H100-80": "H100",
    "H100": "H100",
    "H100-96-500W": "H100-500W",
    "H200": "H200",
    "B200": "B200",
}
# Programs that compute a part of each block, or some blocks, again; which part is not in the row.
PARTIAL = ("selective-ac", "selective-op")
UNKNOWN_VOCABULARY = 32_000  # of a sentencepiece model, which such programs come with


class Declined(Exception):
    """Why there is no prediction for a row."""


@dataclass(frozen=True)
class Run:
    """A published run.

    Attributes:
        config: the model.
        layout: its degrees.
        cluster: GPUs and links.
        software: what the program fuses and hides, as far as the row says.
        flops: what the source counts as the FLOPs of one sequence.
        partly: a part of the blocks is computed again, and it is not known which; the layout then
            says none.
    """

    config: ModelConfig
    layout: Layout
    cluster: Cluster
    software: Software
    flops: float
    partly: bool = False

    def tflops(self, seconds: float) -> float:
        """TFLOP/s of a GPU as the source would state it for a step of `seconds`."""
        return self.flops * self.layout.batch / seconds / self.layout.gpus / 1e12


def texts(row: Row) -> Texts:
    """All columns as text; numbers of a data frame that are missing become empty."""
    made = {name: "" if value is None else str(value).strip() for name, value in row.items()}
    return {name: "" if text == "nan" else text for name, text in made.items()}


def _whole(row: Texts, name: str, default: int | None = None) -> int:
    if text := row.get(name, ""):
        return int(float(text))
    if default is None:
        raise Declined(f"{name} is not published")
    return default


def read(row: Row) -> Run:
    """The row as a run.

    Args:
        row: as published.

    Raises:
        Declined: something is missing without which a prediction would be a guess.
    """
    known = texts(row)
    gpu = GPU_NAMES.get(known.get("gpu", ""))
    if gpu is None:
        raise Declined(f"the GPU {known.get('gpu', '')!r} is not in the table of known ones")
    if not known.get("mbs"):
        raise Declined("the micro-batch is not published, and the rate of products depends on it")
    config = _config(known)
    layout = _layout(known)
    software = _software(known, layout)
    counted = _flops(known, config)
    partly = known.get("recompute", "") in PARTIAL
    return Run(config, layout, cluster(gpu, layout.gpus), software, counted, partly)


def _config(row: Texts) -> ModelConfig:
    """The model's shape."""
    if row.get("experts"):
        raise Declined("the shape of its experts is not in the row")
    heads = _whole(row, "heads")
    try:
        return ModelConfig(
            layers=_whole(row, "layers"),
            hidden=_whole(row, "hidden"),
            heads=heads,
            kv_heads=_whole(row, "kv_heads", heads),
            ffn=_whole(row, "ffn"),
            vocabulary=_whole(row, "vocab", UNKNOWN_VOCABULARY),
            sequence=_whole(row, "seq"),
            gated=_whole(row, "gated", 0) == 1,
            tied=_whole(row, "tied", 0) == 1,
        )
    except Refusal as error:
        raise Declined(f"the shape does not fit together: {error.asked}, {error.found}") from error


def _schedule(row: Texts, chunks: int) -> str:
    """Named in the notes, or told by the chunks."""
    named = re.search(r"\bschedule ([\w-]+);", row.get("notes", ""))
    if named:
        for name, kind in KINDS.items():
            if named[1] in (name, kind.published):
                return name
        raise Declined(f"the schedule {named[1]} is not in the table of known ones")
    if not row.get("vpp"):
        raise Declined("the chunks of each stage are not published, and the bubble hangs on them")
    return "interleaved 1F1B" if chunks > 1 else "1F1B"


def _layout(row: Texts) -> Layout:
    """The degrees; the batch must come out even."""
    recompute, precision = row.get("recompute", ""), row.get("precision", "")
    recompute = "none" if recompute in PARTIAL else recompute
    if recompute not in RECOMPUTE:
        raise Declined(f"what it computes again is {recompute or 'not published'!r}")
    if precision not in PRECISIONS:
        raise Declined(f"the precision is {precision or 'not published'!r}")
    pp, tp, cp, chunks = (_whole(row, name, 1) for name in ("pp", "tp", "cp", "vpp"))
    gpus, size, batch = (_whole(row, name) for name in ("n_gpus", "mbs", "gbs"))
    dp = gpus // (pp * tp * cp)
    if dp * pp * tp * cp != gpus or batch % (size * dp):
        raise Declined(f"{batch} sequences on {gpus} GPUs do not come out even")
    if "fsdp" in row.get("overlap", "").split("+") and row.get("zero") != "3":
        raise Declined("FSDP that does not cut the parameters, too: no such run was published")
    name = _schedule(row, chunks) if pp > 1 else "1F1B"
    micro_batches = batch // (size * dp)
    if name == "interleaved 1F1B" and micro_batches % pp:
        raise Declined("interleaved stages need as many micro-batches as a multiple of pp")
    return Layout(
        pp=pp,
        dp=dp,
        cp=cp,
        tp=tp,
        micro_batch_size=size,
        micro_batches=micro_batches,
        schedule=name,
        chunks=chunks if name == "interleaved 1F1B" else 1,
        zero=_whole(row, "zero", 0),
        sequence=_whole(row, "sp", 0) == 1,
        recompute=recompute,
        precision=precision,
    )


def _software(row: Texts, layout: Layout) -> Software:
    """What the program fuses and hides."""
    words = row.get("overlap", "")
    if "?" in words:
        raise Declined("it is not known what runs beside computation")
    overlap = set(words.split("+")) - {"none", ""}
    if overlap & {"fsdp", "zero3"}:
        overlap.add("dp")
    if "overlaps wgrad" in row.get("notes", ""):
        overlap.add("wgrad")
    if layout.precision == "fp16":  # Megatron-LM of those years waits for every message
        overlap.discard("pp")
    flash = _whole(row, "flash", 0) == 1
    # Programs without fused attention had dropout, but for gated networks, as LLaMA's.
    dropout = not flash and _whole(row, "gated", 0) == 0
    return Software(
        recipe=replace(usual_recipe(layout), flash=flash, dropout=dropout),
        attention=_attention(row) if layout.zero == 3 else 3,
        eager=layout.zero == 3 and "compile" not in row.get("notes", ""),
        early_stop=layout.zero == 3,
        overlap=frozenset(overlap),
        activations=2 if "Nemotron" in row.get("model", "") else 1,
    )


def _attention(row: Texts) -> int:
    """llm-foundry's runs are of 2023, with attention written in Triton; PyTorch's own is newer."""
    return 1 if "llm-foundry" in row.get("source", "") else 2


def _flops(row: Texts, config: ModelConfig) -> float:
    """FLOPs of a sequence by the source's own definition; model FLOPs if it gives none."""
    definition = row.get("tflops_def", "")
    published = re.search(r"per sequence ([\d.]+e\+?\d+)", definition)
    if published:
        return float(published[1])
    if definition.startswith("hardware"):
        return flops.hardware(config, "full")
    return flops.model(config)
