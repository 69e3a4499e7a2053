"""A training run on a mesh, from the corpus to the last checkpoint.

Notebook: 13 3D parallelism, 16 Capstone.
Paper: Narayanan et al., "Megatron-LM" (2021); Loshchilov & Hutter, "SGDR" (2017), for the cosine.
Costs what `train_step` costs, and for a checkpoint what `save_sharded` does.
The production version (torchtitan's train.py) also reads data in the background. What surrounds a
run (options, its folder, what it reports) is in `command/`.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path

import torch

from course_lib.checkpoint import AsyncSaver, Stateful, resume_training, save_training
from course_lib.checkpoint.agree import gather_json
from course_lib.comm import Group, Mesh
from course_lib.data import WindowSampler, load_data
from course_lib.model import AdamW, Transformer
from course_lib.parallel.data.accumulate import Batch
from course_lib.precision import DynamicLossScaler
from course_lib.replay import Recorder, record
from course_lib.trace import Ledger, Refusal, Timeline
from course_lib.train.command.check import check
from course_lib.train.command.config import RunConfig
from course_lib.train.command.folder import (
    CHECKPOINTS,
    LEDGERS,
    TRACE,
    open_folder,
    recording_folder,
    write_config,
)
from course_lib.train.command.other_tools.hugging_face import load_weights
from course_lib.train.command.report import Reporter
from course_lib.train.evaluate import evaluate
from course_lib.train.layout import lay_out, make_optimizers
from course_lib.train.mesh_checkpoint import mesh_training
from course_lib.train.step import StepReport, own_micro_batches, train_step


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
        other: the same of the text to validate on.
        scaler: of the loss, for fp16.
        training: makes the record of all this, for checkpoints.
        recorder: is told of each step's batch and loss; None if the run is not recorded.

    Raises:
        ConfigError: the config cannot work on so many ranks.
    """

    def __init__(self, config: RunConfig, group: Group) -> None:
        check(config, group.size)
        self.config, self.group = config, group
        self.recorder: Recorder | None = None
        # First: whether there is enough text is known at once, and a large model takes its time.
        text = load_data(config.data, config.corpus_mib << 20)
        if config.mask_documents and text.train_starts is None:
            why = "the course's own text is one document: give --data"
            raise Refusal("--mask-documents", "a text without documents", why)
        self.sampler, self.other = (
            WindowSampler(tokens, config.sequence, config.batch, seed=config.seed, starts=starts)
            for tokens, starts in (
                (text.train, text.train_starts),
                (text.validation, text.validation_starts),
            )
        )
        dtype = torch.float64 if config.weights == "fp64" else torch.float32
        whole = Transformer(config.model, config.seed).to(group.device, dtype)
        if config.weights_from:
            load_weights(whole, Path(config.weights_from))
        self.model = lay_out(
            whole,
            Mesh(group, config.degrees),
            config.make_schedule(),
            sequence=config.sequence_parallel,
            precision=config.precision,
            recompute=config.recompute,
            zero=config.zero,
            documents=config.mask_documents,
        )
        betas = config.beta1, config.beta2
        options = {"lr": config.rate, "weight_decay": config.decay, "betas": betas}
        cap = {"cap": config.bucket_mib << 20} if config.zero in (1, 2) else {}
        self.optimizers = make_optimizers(self.model, AdamW, **options, **cap)
        self.scaler = self._make_scaler()
        parts: dict[str, Stateful] = {"sampler": self.sampler}
        if self.scaler is not None:
            parts["scaler"] = self.scaler
        self.training = partial(mesh_training, self.model, self.optimizers, parts)

    def _make_scaler(self) -> DynamicLossScaler | None:
        if self.config.precision != "fp16":
            return None
        init, interval = 2.0**self.config.scale_power, self.config.scale_window
        return DynamicLossScaler(self.group, init, interval=interval)

    def step(self) -> StepReport:
        """Makes the next update."""
        rate = rate_at(self.config, self.sampler.step)
        for optimizer in self.optimizers:
            for options in optimizer.param_groups:
                options["lr"] = rate
        batches = self._own(next(self.sampler))
        if self.recorder is not None:
            self.recorder.step(self.sampler.step, batches)
        max_norm = self.config.max_norm
        report = train_step(self.model, batches, self.optimizers, max_norm, self.scaler)
        if self.recorder is not None:
            self.recorder.loss(report.loss)
        return report

    def validate(self) -> float:
        """The loss of the other text: the same windows every time, on every mesh."""
        count = min(self.config.validate_batches, self.other.steps_per_epoch)  # no window twice
        batches = map(self.other.batch, range(count))
        losses = [evaluate(self.model, self._own(batch)) for batch in batches]
        return sum(losses) / len(losses)

    def _own(self, batch: Batch) -> list[Batch]:
        """This rank's micro-batches of a batch that every rank has whole."""
        inputs, targets = (t.to(self.group.device) for t in batch)
        return own_micro_batches(inputs, targets, self.model)


def train(config: RunConfig, group: Group, *, bar: bool | None = None) -> list[dict[str, float]]:
    """Trains, and writes what the config asks for; collective.

    Args:
        config: the run.
        group: all ranks.
        bar: whether index 0 shows its progress in a line that is overwritten (a notebook can), or
            in ten lines; None asks the terminal.

    Returns:
        For each step made here: step (from 1), loss, norm, rate, tokens, made, seconds, and what
        `command/meter.py` measured. The same on every rank, but for the seconds.

    Raises:
        ConfigError: the run cannot work on so many ranks; nothing has been started.
        CheckpointError: checkpoints are in the folder already and it should not resume, another job
            is at work there, or the one to go on from is damaged or of another run.
        NotFinite: a loss is no number.
    """
    check(config, group.size)
    with open_folder(config, group):
        run = Run(config, group)
        start = _begin(run)
        write_config(config, group)
        report = Reporter(run.model, run.optimizers, config, start, bar)
        saver = _saver(config, group)
        rows = []
        with _recorder(config, group, start) as run.recorder:
            # Validation, measured times and checkpoints are no part of what is compared.
            aside = run.recorder.paused if run.recorder else nullcontext
            for step in range(start + 1, config.steps + 1):
                if step <= config.steps - config.trace_steps + 1:
                    group.ledger.forget()
                rows.append(_make(run, step))
                with aside():
                    if config.validate_every and step % config.validate_every == 0:
                        rows[-1]["validation"] = run.validate()
                    report.add(rows[-1], saver)
                    if saver and (step % config.save_every == 0 or step == config.steps):
                        saver.wait()  # first: an error below must not leave a save under way
                        report.settle()  # where a checkpoint is, the log has all steps before it
                        save_training(run.training(), saver, group, step=step)
        if saver is not None:
            saver.wait()
        report.close()
        if config.trace_steps:
            _write_trace(Path(config.folder), group)
    return rows


@contextmanager
def _recorder(config: RunConfig, group: Group, start: int) -> Iterator[Recorder | None]:
    """What writes the run down, call by call, if that is asked for."""
    if not config.record:
        yield None
        return
    with record(recording_folder(Path(config.folder), start), group) as recorder:
        yield recorder


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


def _begin(run: Run) -> int:
    """The step after which it goes on; 0 at the beginning."""
    if not run.config.resume:
        return 0
    resumed = resume_training(run.training(), Path(run.config.folder) / CHECKPOINTS, run.group)
    return resumed.step if resumed else 0


def _saver(config: RunConfig, group: Group) -> AsyncSaver | None:
    if not config.save_every:
        return None
    return AsyncSaver(Path(config.folder) / CHECKPOINTS, group, keep=config.keep)


def _write_trace(folder: Path, group: Group) -> None:
    """The ledgers of all ranks, and the same as a Chrome trace."""
    books = gather_json(group.ledger.to_dict(), group)
    if group.index == 0:
        (folder / LEDGERS).write_text(json.dumps(books))
        timeline = Timeline(map(Ledger.from_dict, books))
        (folder / TRACE).write_text(timeline.chrome_trace())
