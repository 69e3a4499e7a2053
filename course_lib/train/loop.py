"""A training run on a mesh, from the corpus to the last checkpoint.

Notebook: 13 3D parallelism, 16 Capstone.
Paper: Narayanan et al., "Megatron-LM" (2021); Loshchilov & Hutter, "SGDR" (2017), for the cosine.
Costs what `train_step` costs, and for a checkpoint what `save_sharded` does.
The production version (torchtitan's train.py) also reads data in the background, counts its FLOP/s,
and watches for ranks that are slow.
"""

from __future__ import annotations

import json
import math
import time
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch

from course_lib.checkpoint import (
    AsyncSaver,
    CheckpointError,
    Stateful,
    complete_steps,
    resume_training,
    save_training,
)
from course_lib.checkpoint.agree import gather_json, together
from course_lib.comm import Group, Mesh
from course_lib.data import WindowSampler, load_corpus
from course_lib.model import AdamW, Transformer
from course_lib.precision import DynamicLossScaler
from course_lib.trace import Ledger, Timeline
from course_lib.train.command.check import check
from course_lib.train.command.config import RunConfig
from course_lib.train.layout import lay_out, make_optimizers
from course_lib.train.command.log import JsonLines, Log, Progress, TensorBoard
from course_lib.train.mesh_checkpoint import mesh_training
from course_lib.train.step import StepReport, own_micro_batches, train_step

CHECKPOINTS = "checkpoints"  # folders and files inside a run's folder
CONFIG, LOG, LEDGERS, TRACE = "config.json", "log.jsonl", "ledgers.json", "trace.json"


def rate_at(config: RunConfig, step: int) -> float:
    """The learning rate of a step, counted from 0: a line up, then a cosine down to a tenth.

    A function of the step, so that a run which is resumed has nothing to remember.
    """
    if step < config.warmup:
        return config.rate * (step + 1) / config.warmup
    done = (step - config.warmup) / max(1, config.steps - config.warmup)
    return config.rate * (0.55 + 0.45 * math.cos(math.pi * done))


class Run:
    """A model on its mesh, its optimizers and its data, ready for the next step; collective.

    Args:
        config: one that can work on so many ranks.
        group: all ranks.

    Attributes:
        model: on its mesh.
        optimizers: the model's.
        sampler: gives the windows of the whole batch, the same on every rank.
        scaler: of the loss, for fp16.
        training: makes the record of all this, for checkpoints.

    Raises:
        ConfigError: the config cannot work on so many ranks.
    """

    def __init__(self, config: RunConfig, group: Group) -> None:
        check(config, group.size)
        self.config, self.group = config, group
        dtype = torch.float64 if config.weights == "fp64" else torch.float32
        whole = Transformer(config.model, config.seed).to(group.device, dtype)
        self.model = lay_out(
            whole,
            Mesh(group, config.degrees),
            config.make_schedule(),
            sequence=config.sequence_parallel,
            precision=config.precision,
            recompute=config.recompute,
            zero=config.zero,
        )
        options = {"lr": config.rate, "weight_decay": config.decay, "betas": (0.9, 0.95)}
        self.optimizers = make_optimizers(self.model, AdamW, **options)
        tokens = load_corpus(limit=config.corpus_mib << 20).train
        self.sampler = WindowSampler(tokens, config.sequence, config.batch, seed=config.seed)
        self.scaler = DynamicLossScaler(group) if config.precision == "fp16" else None
        parts: dict[str, Stateful] = {"sampler": self.sampler}
        if self.scaler is not None:
            parts["scaler"] = self.scaler
        self.training = partial(mesh_training, self.model, self.optimizers, parts)

    def step(self) -> StepReport:
        """Makes the next update."""
        rate = rate_at(self.config, self.sampler.step)
        for optimizer in self.optimizers:
            for options in optimizer.param_groups:
                options["lr"] = rate
        inputs, targets = (t.to(self.group.device) for t in next(self.sampler))
        batches = own_micro_batches(inputs, targets, self.model)
        return train_step(self.model, batches, self.optimizers, self.config.max_norm, self.scaler)


def train(config: RunConfig, group: Group, *, bar: bool | None = None) -> list[dict[str, float]]:
    """Trains, and writes what the config asks for; collective.

    Args:
        config: the run.
        group: all ranks.
        bar: whether index 0 shows its progress in a line that is overwritten (a notebook can), or
            in ten lines; None asks the terminal.

    Returns:
        For each step made here: step (from 1), loss, norm, rate, tokens, made, seconds. The same on
        every rank, but for the seconds.

    Raises:
        ConfigError: the run cannot work on so many ranks; nothing has been started.
        CheckpointError: checkpoints are in the folder already and it should not resume, or the one
            to go on from is damaged or of another run.
    """
    check(config, group.size)
    folder = Path(config.folder)
    _open_folder(config, group)
    run = Run(config, group)
    start = 0
    if config.resume:
        resumed = resume_training(run.training(), folder / CHECKPOINTS, group)
        start = resumed.step if resumed else 0
    saver = AsyncSaver(folder / CHECKPOINTS, group, keep=config.keep) if config.save_every else None
    logs = _open_logs(config, group, start, bar)
    rows = []
    for step in range(start + 1, config.steps + 1):
        if step <= config.steps - config.trace_steps + 1:
            group.ledger.forget()
        rows.append(_make(run, step))
        for log in logs:
            log.add(rows[-1])
        if saver is not None and (step % config.save_every == 0 or step == config.steps):
            save_training(run.training(), saver, group, step=step)
    if saver is not None:
        saver.wait()
    for log in logs:
        log.close()
    if config.trace_steps:
        _write_trace(folder, group)
    return rows


def _make(run: Run, step: int) -> dict[str, float]:
    """One step, and its row."""
    begin = time.perf_counter()
    with run.group.ledger.span(f"step {step}"):
        report = run.step()
    return {
        "step": step,
        **asdict(report),
        "rate": run.optimizers[0].param_groups[0]["lr"],
        "seconds": round(time.perf_counter() - begin, 4),
    }


def _open_folder(config: RunConfig, group: Group) -> None:
    """Makes the run's folder; refuses one whose checkpoints a new run would mix with its own."""
    if not config.folder:
        return
    folder = Path(config.folder)

    def look() -> None:
        if group.index:
            return
        steps = complete_steps(folder / CHECKPOINTS) if (folder / CHECKPOINTS).exists() else {}
        if steps and not config.resume:
            raise CheckpointError(
                f"a new run in {folder}",
                f"checkpoints of another, up to step {max(steps)}",
                "pass --resume to go on from there, or another --folder",
            )
        folder.mkdir(parents=True, exist_ok=True)
        (folder / CONFIG).write_text(json.dumps(asdict(config), indent=1))

    together(f"open the folder {folder}", look, group)


def _open_logs(config: RunConfig, group: Group, start: int, bar: bool | None) -> list[Log]:
    """What index 0 writes; the others write nothing."""
    if group.index:
        return []
    logs: list[Log] = [Progress(config.steps, anew=bar)]
    if config.folder:
        folder = Path(config.folder)
        logs.append(JsonLines(folder / LOG, start))
        with suppress(ImportError):  # not installed, and the lines of JSON have the same numbers
            logs.append(TensorBoard(folder / "tensorboard", start))
    return logs


def _write_trace(folder: Path, group: Group) -> None:
    """The ledgers of all ranks, and the same as a Chrome trace."""
    books = gather_json(group.ledger.to_dict(), group)
    if group.index == 0:
        (folder / LEDGERS).write_text(json.dumps(books))
        timeline = Timeline(map(Ledger.from_dict, books))
        (folder / TRACE).write_text(timeline.chrome_trace())


def read_config(folder: Path | str) -> RunConfig:
    """The config of the run in a folder, as it was last started."""
    saved: dict[str, Any] = json.loads((Path(folder) / CONFIG).read_text())
    return RunConfig(**saved)
