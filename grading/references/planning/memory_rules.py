"""Bytes of a rank by the rules of memory_model, and what comes out if one of them is forgotten.

Paper: Rajbhandari et al., "ZeRO" (2020), section 3; Korthikanti et al. (2022), section 4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from course_lib.layout import Layout
from course_lib.model import ModelConfig, Transformer

Answer = tuple[int, dict[str, float]]  # the right number, and known wrong ones
CLASSES = ("parameters", "gradients", "optimizer")
GIB = 1 << 30


class Rank:
    """A rank of one stage.

    Args:
        config: the whole model.
        layout: how it is spread.
        stage: the rank's place on pp.
    """

    def __init__(self, config: ModelConfig, layout: Layout, stage: int) -> None:
        self.config, self.layout, self.stage = config, layout, stage
        self.first, self.last = stage == 0, stage == layout.pp - 1
        self.own = config.layers // layout.pp
        self.item = 2 if layout.precision == "bf16" else 4
        self.tokens = layout.micro_batch_size * config.sequence

    # --- parameters ------------------------------------------------------------------------------
    @cached_property
    def tensors(self) -> dict[str, int]:
        """The sizes of the stage's tensors, not cut, from a model that is made."""
        config = ModelConfig(**{**vars(self.config), "layers": self.own})
        tied = config.tied and self.last
        ends = {"embedding.weight": self.first or tied, "norm.weight": self.last,
                "head.weight": self.last}  # fmt: skip
        sizes = {name: p.numel() for name, p in Transformer(config).named_parameters()}
        return {name: size for name, size in sizes.items() if ends.get(name, True)}

    @cached_property
    def pieces(self) -> dict[str, int]:
        """The sizes of this rank's tensors, which tp has cut."""
        return {
            name: size // (1 if "norm" in name else self.layout.tp)
            for name, size in self.tensors.items()
        }

    def sized(self, *words: str) -> int:
        """Parameters of this rank in tensors with one of these words in the name."""
        return sum(n for name, n in self.pieces.items() if any(word in name for word in words))

    @cached_property
    def count(self) -> int:
        """All of them."""
        return self.sized("")

    def wrong_counts(self) -> dict[str, float]:
        """What else may have been counted."""
        config, tp = self.config, self.layout.tp
        norms, table = self.sized("norm"), config.vocabulary * config.hidden // tp
        ends = self.sized("embedding", "head")
        network = self.sized("down") * (-1 if config.gated else 1)
        heads = self.sized("key", "value") * (config.heads // config.kv_heads - 1)
        lone = self.layout.pp == 1
        blocks = self.count - ends - self.last * config.hidden
        return {
            "a tied weight is one on a rank with both ends":
                self.count + config.tied * lone * table,
            "with a pipeline a tied weight is on both ends":
                self.count - config.tied * self.last * table,
            "embedding and output layer are not on every stage": self.count + 2 * table - ends,
            "the embedding is on the first stage only":
                self.count + (not self.first) * table,
            "the output layer is on the last stage only": self.count + (not self.last) * table,
            "embedding or output layer are missing": self.count - ends,
            "tp leaves norms whole": self.count - norms + norms // tp,
            "tp cuts embedding and output layer too": self.count + ends * (tp - 1),
            "tp cuts every matrix": (self.count - norms) * tp + norms,
            "the last stage has a norm before its output layer":
                self.count - self.last * config.hidden,
            "each block has two norms": self.count - self.own * config.hidden,
            "the network has three matrices if it is gated, else two": self.count + network,
            "keys and values have `kv_heads` heads": self.count + heads,
            "a stage has L/pp of the blocks": self.count + blocks * (self.layout.pp - 1),
        }  # fmt: skip

    def each(self) -> tuple[int, int, int]:
        """Bytes a parameter in the three classes."""
        half = self.layout.precision == "bf16" and self.layout.zero < 3
        return (2, 4, 12) if half else (4, 4, 8)

    def held(self, name: str, count: float | None = None, **other: float) -> int:
        """Bytes of a class for so many parameters; `level` or `each` in place of the right one."""
        place = CLASSES.index(name)
        count, each = self.count if count is None else count, other.get("each", self.each()[place])
        cut = self.layout.zero >= other.get("level", 3 - place)
        return int((-(-int(count) // self.layout.dp) if cut else int(count)) * each)

    # --- activations -----------------------------------------------------------------------------
    def outside(self, cut: bool | None = None) -> int:
        """Values of D numbers a token, between the regions of tp."""
        cut = self.layout.sequence if cut is None else cut
        return self.tokens // (self.layout.tp if cut else 1) * self.config.hidden

    def block(self, **other: Any) -> float:
        """Bytes that a block keeps of a micro-batch; a rule is changed by naming it.

        Args:
            **other: `item` of a value, `mask`s outside, values `entry` outside, `sequence`,
                `inner` and `over` for what tp cuts, `scores`, `networks`, `recompute`.
        """
        c, tp = self.config, self.layout.tp
        item, inner = other.get("item", self.item), other.get("inner", tp)
        outside = self.outside(other.get("sequence"))
        recompute = other.get("recompute", self.layout.recompute)
        if recompute == "full":
            return item * outside
        entry = outside * (other.get("entry", 4) * item + other.get("mask", 2))
        keys = c.hidden * c.kv_heads // c.heads
        inside = 2 * c.hidden + 2 * keys + other.get("networks", 3 if c.gated else 2) * c.ffn
        scores = self.tokens * c.heads * c.sequence * other.get("scores", 2 * item + 1)
        scores = 0 if recompute == "selective" else scores / other.get("over", tp)
        return entry + item * self.tokens * inside / inner + scores

    @property
    def in_flight(self) -> int:
        """Micro-batches that the stage holds."""
        return min(self.layout.micro_batches, self.layout.pp - self.stage)


# --- number by number ----------------------------------------------------------------------------
def states(name: str) -> Callable[[Rank], Answer]:
    """The answer for parameters, gradients or optimizer."""

    def answer(r: Rank) -> Answer:
        right = r.held(name)
        likely: dict[str, float] = {why: r.held(name, n) for why, n in r.wrong_counts().items()}
        return right, likely | _wrong_states(r, name, right)

    return answer


def _wrong_states(r: Rank, name: str, right: int) -> dict[str, float]:
    whole, cut = r.held(name, level=9), r.held(name, level=0)
    since = {"parameters": "3 only", "gradients": "2 on", "optimizer": "1 on"}[name]
    each = r.each()[CLASSES.index(name)]
    one_by_one = sum(-(-size // r.layout.dp) for size in r.pieces.values())
    known: dict[str, float] = {
        f"ZeRO cuts {name} from stage {since}": whole + cut - right,
        "ZeRO rounds up: a piece is as long on every rank": r.count / r.layout.dp * each,
        "ZeRO rounds up: the remainder is some rank's too": r.count // r.layout.dp * each,
        "all tensors together are rounded up once": one_by_one * each,
        "in bytes, not in GiB": right / GIB,
        "in bytes, not in parameters": r.held(name, each=1),
    }
    return known | _wrong_bytes(r, name, each)


def _wrong_bytes(r: Rank, name: str, each: int) -> dict[str, float]:
    """With other bytes a parameter."""
    half = r.layout.precision == "bf16"
    if name == "parameters":
        why = f"a parameter has {each} bytes in {r.layout.precision} with ZeRO-{r.layout.zero}"
        why = "with ZeRO-3 the pieces are fp32" if half and r.layout.zero == 3 else why
        return {
            "the fp32 master copy is a part of the optimizer's state": r.held(name, each=6),
            why: r.held(name, each=6 - each),
        }
    if name == "gradients":
        return {"gradients are summed in fp32: 4 bytes each": r.held(name, each=2)}
    master = each == 12
    return {
        "the fp32 master weights are missing, or a moment: 4 bytes a parameter" if master else
        "there is no master copy: the parameters themselves are fp32":
            r.held(name, each=20 - each),
        "Adam has two moments, in fp32": r.held(name, each=each - 4),
        "the moments are fp32, and the master copy too": r.held(name, each=each / 2),
    }  # fmt: skip


def activations(r: Rank) -> Answer:
    """What blocks keep."""
    c, layout, n = r.config, r.layout, r.own * r.in_flight
    right = int(n * r.block())

    def other(**rules: Any) -> float:
        return n * r.block(**rules)

    flights: dict[str, float] = {
        "of all micro-batches in flight, not of one": 1,
        "1F1B holds pp - stage micro-batches, not all": layout.micro_batches,
        "there are no more micro-batches than `micro_batches`": layout.pp - r.stage,
        "later stages hold fewer: pp - stage": min(layout.micro_batches, layout.pp),
        "the first stage holds most, the last one": min(layout.micro_batches, r.stage + 1),
        "one fewer than there are: the one that turns round counts": max(0, r.in_flight - 1),
    }
    return right, {why: r.own * count * r.block() for why, count in flights.items()} | {
        "`sequence` cuts what is outside the regions, too": other(sequence=False),
        "without `sequence` tp does not cut what is outside the regions": other(sequence=True),
        "tp cuts what is inside attention and network": other(inner=1),
        "tp cuts the scores: they are of its heads": other(over=1),
        "tp cuts what is inside attention, network and scores": other(inner=1, over=1),
        "the scores are missing": other(scores=0),
        "scores: two values and a mask": other(scores=2 * r.item),
        "scores: two values and a mask, not one value": other(scores=r.item),
        "the masks of the two dropouts outside are missing": other(mask=0),
        "a mask has one byte a number": other(mask=2 * r.item, scores=3 * r.item),
        "both norms keep their inputs, and products the norms' results": other(entry=2),
        "a value has 4 bytes in fp32" if r.item == 4 else "a value has 2 bytes in bf16": other(
            item=6 - r.item
        ),
        "three values of F if gated, else two": other(networks=2 if c.gated else 3),
        f"`recompute` is {layout.recompute!r} here": other(recompute="none"),
        "`full` keeps the block's input alone": other(recompute="selective"),
        "`selective` keeps all but the scores": other(recompute="full"),
        "of a stage's blocks, L/pp": right * layout.pp,
        "of all of the stage's blocks, L/pp": right / r.own,
        "of `micro_batch_size` sequences": right / layout.micro_batch_size,
        "`micro_batch_size` is one rank's: dp has cut the batch already": right / layout.dp,
        "in bytes, not in GiB": right / GIB,
    }


def head(r: Rank) -> Answer:
    """What norm, output layer and loss keep."""
    loss = 4 * r.tokens * r.config.vocabulary // r.layout.tp

    def kept(values: int = 2, sequence: bool | None = None) -> int:
        return values * r.item * r.outside(sequence)

    right = r.last * (kept() + loss)
    return right, {
        "it is on the last stage only": kept() + loss,
        "the loss's numbers are missing": r.last * kept(),
        "the loss is in fp32 under bf16 as well": r.last * (kept() + loss // 2),
        "tp cuts the loss's numbers": r.last * (kept() + loss * r.layout.tp),
        "the input and the result of its norm are missing": r.last * loss,
        "the norm's result is kept beside its input": r.last * (kept(1) + loss),
        "norm and product are cut by `sequence`": r.last * (kept(sequence=False) + loss),
        "norm and product are cut only by `sequence`": r.last * (kept(sequence=True) + loss),
        "it has one micro-batch at a time": right * r.layout.micro_batches,
        "in bytes, not in GiB": right / GIB,
    }


ANSWERS: Mapping[str, Callable[[Rank], Answer]] = {
    **{name: states(name) for name in CLASSES}, "activations": activations, "head": head,
}  # fmt: skip


def most(config: ModelConfig, layout: Layout) -> Answer:
    """The bytes of the fullest rank."""
    sums = [
        sum(answer(Rank(config, layout, stage))[0] for answer in ANSWERS.values())
        for stage in range(layout.pp)
    ]
    return max(sums), {
        "the first stage is not always the fullest": sums[0],
        "the last stage is not always the fullest": sums[-1],
        "one rank's, not all stages' together": sum(sums),
        "the fullest rank's, not the mean": sum(sums) / len(sums),
        "the one that holds most, not least": min(sums),
    }
