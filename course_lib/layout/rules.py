"""Which layouts a model can have: what an axis must divide, or have one of for each rank.

Paper: Narayanan et al., "Megatron-LM" (2021), section 3; Brandon et al., "Striped Attention"
(2023), for pieces from both ends of a sequence.

A training run is checked with these rules before it starts, the planner before it predicts, an
explorer before it draws. What is possible and still unwise is the planner's own matter, and what
this library's wrappers cannot do together is `train`'s.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from course_lib.layout.layout import Layout
from course_lib.schedule import kind_of
from course_lib.trace import Refusal, chunk_sizes


class Sizes(Protocol):
    """What the rules ask of a model; `model.ModelConfig` says it."""

    @property
    def layers(self) -> int:
        """Blocks."""

    @property
    def heads(self) -> int:
        """Heads of queries."""

    @property
    def kv_heads(self) -> int:
        """Heads of keys and values."""

    @property
    def ffn(self) -> int:
        """Channels inside a feed-forward network, or inside an expert."""

    @property
    def vocabulary(self) -> int:
        """Tokens there are."""

    @property
    def sequence(self) -> int:
        """Tokens in a sequence."""

    @property
    def moe(self) -> Any:
        """How many `experts`, among others; None for a dense model."""


def misfits(model: Sizes, layout: Layout) -> Iterator[Refusal]:
    """All that stands against a layout of a model, the plainest first; nothing if it can be.

    Args:
        model: its sizes.
        layout: the degrees, and how the pipeline and the sequence are cut.

    Raises:
        ScheduleError: there is no schedule of the layout's name.
    """
    yield from _heads(model, layout)
    yield from cut_misfits(model, layout.tp, sequence=layout.sequence)
    yield from _sequence(model, layout)
    yield from _experts(model, layout)
    stages = kind_of(layout.schedule).stages(layout.pp, layout.chunks)
    if stages > model.layers:
        yield Refusal(
            f"pp {layout.pp} under {layout.schedule}",
            f"{model.layers} layers",
            f"{model.layers} blocks are fewer than {stages} stages",
        )


def _experts(model: Sizes, layout: Layout) -> Iterator[Refusal]:
    asked = f"ep {layout.ep}"
    if model.moe is None and layout.ep > 1:
        yield Refusal(asked, "a dense model", f"a dense model has no experts for {asked}")
    elif model.moe is not None and model.moe.experts < layout.ep:
        found = f"{model.moe.experts} experts"
        yield Refusal(asked, found, f"{found} for {asked}: every rank has one or more")


def _heads(model: Sizes, layout: Layout) -> Iterator[Refusal]:
    tp, heads, shared = layout.tp, model.heads, model.kv_heads
    if heads % tp or (shared % tp and tp % shared):
        yield Refusal(
            f"tp {tp}",
            f"{heads} query and {shared} key-value heads",
            f"a rank computes whole heads: tp divides the {heads} heads of queries, and divides "
            f"the {shared} of keys and values or is a multiple of them",
        )


def cut_misfits(model: Sizes, tp: int, *, sequence: bool) -> Iterator[Refusal]:
    """What stands against cutting a model's matrices over tp, with or without the sequence."""
    for count, what in ((model.ffn, "inner channels"), (model.vocabulary, "tokens to know")):
        if count < tp:
            yield Refusal(f"tp {tp}", f"{count} {what}", f"{count} {what} are fewer than tp {tp}")
    if sequence and model.moe and tp > 1:
        yield Refusal(
            f"sequence parallelism over tp {tp}",
            f"{model.moe.experts} experts",
            "an expert's rows are of many sequences, and cannot be cut along one",
        )


def _sequence(model: Sizes, layout: Layout) -> Iterator[Refusal]:
    length, cp, tp = model.sequence, layout.cp, layout.tp
    if length < cp:
        found = f"windows of {length} tokens"
        yield Refusal(f"cp {cp}", found, f"{length} tokens are fewer than cp {cp}")
        return
    counts = sorted(set(tokens_of_ranks(length, cp)))
    if layout.sequence and any(count % tp for count in counts):
        yield Refusal(
            f"sequence parallelism over tp {tp}",
            f"{' or '.join(map(str, counts))} tokens of each window on a rank of cp",
            f"these are cut evenly: {length} tokens do not divide over cp {cp} and tp {tp}",
        )


def tokens_of_ranks(length: int, cp: int) -> list[int]:
    """How many tokens of a sequence each rank of cp has: a piece from the front, one from the back.

    Under a causal mask the back of a sequence attends to all before it, so a rank has both.
    """
    if cp == 1:
        return [length]
    pieces = chunk_sizes(length, 2 * cp)
    return [pieces[rank] + pieces[-1 - rank] for rank in range(cp)]


def uneven_batch(
    batch: int, layout: Layout, micro_batches: int = 1, *, size: int = 1
) -> Refusal | None:
    """Why a batch cannot be cut evenly; None if it can.

    Args:
        batch: sequences of a step.
        layout: whose ranks of dp and ep share it.
        micro_batches: of each of these.
        size: sequences in each micro-batch.
    """
    ranks = layout.dp * layout.ep
    if batch % (ranks * micro_batches * size) == 0:
        return None
    each = f" with {micro_batches} micro-batches each" if micro_batches > 1 else ""
    each += f" in micro-batches of {size}" if size > 1 else ""
    return Refusal(
        f"a batch of {batch} sequences",
        f"{ranks} ranks (dp × ep){each}",
        f"{batch} sequences do not divide over {ranks} ranks of dp and ep{each}",
    )
