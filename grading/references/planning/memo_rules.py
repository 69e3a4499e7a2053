"""What a rank of a mesh holds and sends, by the rules of the design memo, and known wrong numbers.

Paper: Narayanan et al., "Megatron-LM" (2021), section 3; Rajbhandari et al., "ZeRO" (2020), section
5; Lepikhin et al., "GShard" (2020), section 3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cached_property
from typing import Any

from course_lib.model import ModelConfig, MoEConfig, Transformer
from course_lib.schedule import make_schedule

Answer = tuple[Any, dict[str, Any]]  # the right number, and known wrong ones


def make_config(shape: dict[str, Any], moe: list[int]) -> ModelConfig:
    """A model; its mixture, if there is one, has no auxiliary losses."""
    mixture = MoEConfig(experts=moe[0], top_k=moe[1], balance=0.0, z=0.0) if moe else None
    return ModelConfig(**shape, moe=mixture)


class Rank:
    """What a rank of a stage holds and sends, and what it would if something is forgotten."""

    def __init__(self, case: dict[str, Any], stage: int) -> None:
        self.case, self.stage = case, stage
        self.pp, self.dp, self.ep, self.tp = (case["sizes"][a] for a in ("pp", "dp", "ep", "tp"))
        self.m, self.item = case["options"]["micro_batches"], case["options"]["item"]
        self.first, self.last = stage == 0, stage == self.pp - 1
        self.own = case["blocks"][stage]
        self.config = make_config({**case["shape"], "layers": self.own}, case["moe"])
        self.width, self.tied = self.config.hidden, self.config.tied
        mixture: list[int] = case["moe"] or [0, 0]
        self.experts_in_all, self.top_k = mixture
        self.number = (
            self.m * case["options"]["micro_batch_size"] * self.config.sequence * self.item
        )

    @cached_property
    def tensors(self) -> dict[str, int]:
        """The sizes of the stage's tensors, not yet cut, from a model that was made."""
        found = {name: p.numel() for name, p in Transformer(self.config).named_parameters()}
        ends = {"embedding.weight": self.first or (self.tied and self.last),
                "norm.weight": self.last, "head.weight": self.last}  # fmt: skip
        return {name: size for name, size in found.items() if ends.get(name, True)}

    def held(self, word: str = "", by: int = 1, only: bool = False) -> int:
        """Parameters without experts'; tensors with `word` in the name are cut `by` times more."""
        total = 0
        for name, size in self.tensors.items():
            cut = 1 if "norm" in name or "router" in name else self.tp
            if ".experts." not in name and (word in name or not only):
                total += size // (cut * by if word and word in name else cut)
        return total

    @cached_property
    def dense(self) -> int:
        """Parameters that are no expert's."""
        return self.held()

    @cached_property
    def experts(self) -> int:
        """Parameters of experts."""
        whole = sum(size for name, size in self.tensors.items() if ".experts." in name)
        return whole // (self.tp * self.ep)

    @cached_property
    def end(self) -> int:
        """This rank's part of the embedding, or of the output layer."""
        return self.config.vocabulary * self.width // self.tp

    def shards(self, dense: int = 0, experts: int = 0, up: bool = True) -> tuple[int, int]:
        """Elements of a shard, cut over so many replicas; over the right ones if 0."""
        counts = ((self.dense, dense or self.dp * self.ep), (self.experts, experts or self.dp))
        a, b = (-(-n // r) if up else n // r for n, r in counts)
        return a, b

    def sums(self, block: int = 4, ends: int = 2, choices: int = 1, loss: int = 3) -> int:
        """Bytes sent on tp, with so many sums of each kind; of `ends` 1 is the embedding's."""
        heads = (self.first if ends in (1, 2) else 0) + (self.last if ends in (2, 3) else 0)
        numbers = self.own * (block * self.width + choices * self.top_k)
        numbers += heads * self.width + loss * self.last
        return 2 * (self.tp - 1) * numbers * self.number // self.tp

    def sent(self, ways: int, tied: int) -> int:
        """Bytes sent on pp."""
        both = self.tied and self.first != self.last
        return ways * self.width * self.number + both * tied * self.item

    def rows(self, trips: int, choices: int, counts: int) -> int:
        """Bytes sent on ep: of rows so many times, and of counts."""
        numbers = trips * self.own * choices * self.width * self.number
        return (self.ep - 1) * (numbers + counts * self.own * self.experts_in_all * 8) // self.ep

    def replicated(self, dense: int, experts: int) -> int:
        """Bytes that ZeRO-1 sends, with so many replicas of each part."""
        a, b = self.shards(dense, experts)
        return 2 * self.item * ((dense - 1) * a + (experts - 1) * b)

    def waiting(self, schedule: str) -> int:
        """The most forwards without their backward, in the lists of actions."""
        now, most = 0, 0
        for action in make_schedule(schedule, self.pp, self.m).actions[self.stage]:
            now += {"F": 1, "B": -1}.get(action.kind, 0)
            most = max(most, now)
        return most


# --- number by number -----------------------------------------------------------------------------
def held(r: Rank) -> Answer:
    """Parameters that are no expert's."""
    heads = r.held("attention.key", only=True) * (r.config.heads // r.config.kv_heads - 1) * 2
    matrices = 2 if r.config.gated else 3
    network = r.held("ffn.down", only=True) * matrices
    tied = r.tied and (r.first or r.last)
    return r.dense, {
        "the last stage has a norm before its output layer": r.dense - r.width * r.last,
        "experts are counted by themselves, not here": r.dense + r.experts,
        "tp does not cut the norms": r.held("norm", r.tp),
        "tp does not cut the router": r.held("router", r.tp),
        "the router is whole on every rank of ep": r.held("router", r.ep),
        "the router is missing": r.dense - r.held("router", only=True),
        "a block has two norms": r.dense - r.own * r.width,
        "key and value have as many heads as kv_heads says": r.dense + heads,
        "the network has three matrices if it is gated, else two": r.dense
        + (network if not r.config.gated else -r.held("ffn.down", only=True)),
        "a tied weight is on both ends of the pipeline": r.dense - r.last * r.end,
        "a rank with both ends has a tied weight once": r.dense + tied * r.end,
        "a tied weight is on the ends only, and the output layer is the last stage's": r.dense
        + r.end,
        "the embedding, or the output layer, is missing on its stage": r.dense - r.end,
        "the ends are cut by tp too": r.dense + (r.first + r.last) * (r.tp - 1) * r.end,
        "tp cuts every matrix": r.dense * r.tp,
    }


def expert_held(r: Rank) -> Answer:
    """Parameters of experts."""
    router = r.held("router", only=True)
    return r.experts, {
        "ep deals the experts out: a rank has experts/ep of them": r.experts * r.ep,
        "tp cuts experts too": r.experts * r.tp,
        "neither ep nor tp cuts them here": r.experts * r.tp * r.ep,
        "dp does not cut parameters: it has replicas of them": r.experts // r.dp,
        "the router is no expert's": r.experts + router,
        "these are all stages' experts: blocks[stage] counts": r.experts
        // max(1, r.own)
        * sum(r.case["blocks"]),
        "one expert's, not all of this rank": r.experts * r.ep // max(1, r.experts_in_all),
        "the network has three matrices if it is gated, else two": r.experts
        * (3 if not r.config.gated else 2)
        // (2 if not r.config.gated else 3),
    }


def state(r: Rank) -> Answer:
    """Bytes of optimizer state."""

    def size(parts: tuple[int, int]) -> int:
        return 2 * r.item * sum(parts)

    right = size(r.shards())
    everyone = r.dp * r.ep
    return right, {
        "ZeRO-1 cuts the state over the replicas": size(r.shards(1, 1)),
        "of an expert there are dp replicas, not dp · ep": size(r.shards(0, everyone)),
        "ranks of ep have replicas of all that is no expert's": size(r.shards(r.dp)),
        "experts have a state, too": 2 * r.item * r.shards()[0],
        "Adam keeps two numbers a parameter": right // 2,
        "Adam keeps two numbers a parameter: the parameter itself is no state": right * 3 // 2,
        "in bytes, not in numbers": right // r.item,
        "rounded up: a shard is as long on every rank": size(r.shards(up=False)),
    }


def on_tp(r: Rank) -> Answer:
    """Bytes of tensor parallelism."""
    right = r.sums()
    return right, {
        "the embedding's sum, forward on the first stage, is missing": r.sums(ends=3),
        "the output layer's sum, backward on the last stage, is missing": r.sums(ends=1),
        "the sums at both ends of the model are missing": r.sums(ends=0),
        "the loss sums three numbers a token on the last stage": r.sums(loss=0),
        "the loss sums three numbers a token, not one": r.sums(loss=1),
        "the choices' weights have a backward sum in each block": r.sums(choices=0),
        "the choices' weights are summed backward only": r.sums(choices=2),
        "only half of a block's four sums: each region has one forward, one backward": r.sums(2),
        "an all-reduce sends 2(N-1)/N of its bytes, not (N-1)/N": right // 2,
        "an all-reduce sends 2(N-1)/N of its bytes, not twice them": right
        * r.tp
        // max(1, r.tp - 1),
        "of one micro-batch, not of the whole step": right // r.m,
        "in numbers, not in bytes": right // r.item,
        "`micro_batch_size` is one rank's: dp and ep have cut the batch already": right
        // (r.dp * r.ep),
        "every stage has its own number of blocks": r.sums() // max(1, r.own),
    }


def on_pp(r: Rank) -> Answer:
    """Bytes of the pipeline."""
    ways = (not r.first) + (not r.last)
    right = r.sent(ways, r.end)
    return right, {
        "the gradient of a tied weight is summed between the ends": r.sent(ways, 0),
        "a rank of tp has its part of the tied weight only": r.sent(ways, r.end * r.tp),
        "an all-reduce over two ranks sends the tied gradient once": r.sent(ways, 2 * r.end),
        "the tied gradient is summed once a step": r.sent(ways, r.end * r.m),
        "the gradient goes back to the stage before": r.sent(int(not r.last), r.end),
        "the last stage sends nothing on, the first nothing back": r.sent(2, r.end),
        "there is nothing to send on a single stage": r.sent(1, r.end),
        "of one micro-batch, not of the whole step": r.sent(ways, r.end * r.m) // r.m,
        "every rank of tp sends all of an activation": r.sent(ways, r.end * r.tp) // r.tp,
    }


def on_ep(r: Rank) -> Answer:
    """Bytes of the experts' exchange."""
    right = r.rows(4, r.top_k, r.m)
    return right, {
        "backward each row's gradient goes the same ways": r.rows(2, r.top_k, r.m),
        "rows go there and back": r.rows(2, r.top_k, 2 * r.m),
        "a token goes to each of its top_k experts": r.rows(4, 1, r.m),
        "a token goes to its top_k experts, not to all": r.rows(4, r.experts_in_all, r.m),
        "how many rows come is told first: 8 bytes for each expert": r.rows(4, r.top_k, 0),
        "counts are told for each micro-batch": r.rows(4, r.top_k, 1),
        "counts are told forward only": r.rows(4, r.top_k, 2 * r.m),
        "what stays on its rank is not sent: (N-1)/N": right * r.ep // max(1, r.ep - 1),
        "tp does not cut rows: each of its ranks sends them all": right // r.tp,
        "of one micro-batch, not of the whole step": right // r.m,
        "an all-to-all sends (N-1)/N of its bytes, an all-reduce twice that": 2 * right,
    }


def on_data(r: Rank) -> Answer:
    """Bytes of ZeRO-1."""
    both = r.dp * r.ep
    right = r.replicated(both, r.dp)
    return right, {
        "experts are summed over their dp replicas only: ranks of ep have other ones": r.replicated(
            both, both
        ),
        "what is no expert's has replicas on ep too": r.replicated(r.dp, r.dp),
        "experts have replicas along dp, and their gradients are summed": r.replicated(both, 1),
        "once a step, not for each micro-batch": right * r.m,
        "both go: gradients are reduce-scattered, then parameters all-gathered": right // 2,
        "what stays on its rank is not sent: (N-1)/N": 2
        * r.item
        * (both * r.shards()[0] + r.dp * r.shards()[1]),
        "in numbers, not in bytes": right // r.item,
    }


def in_flight(r: Rank) -> Answer:
    """Micro-batches."""
    schedule = r.case["options"]["schedule"]
    return r.waiting(schedule), {
        "there are no more micro-batches than there are": r.pp - r.stage
        if schedule == "1F1B"
        else None,
        "GPipe makes all forwards before the first backward": r.waiting("1F1B"),
        "1F1B begins its backwards before all forwards are made": r.m,
        "later stages hold fewer: stage i has the first of pp - i": min(r.m, r.pp),
        "the first stage holds most, the last one": min(r.m, r.stage + 1),
        "one fewer than there are: the one that is turning round counts": min(
            r.m, r.pp - r.stage - 1
        ),
    }


def bubble(r: Rank) -> Answer:
    """Idle time, as numerator and denominator."""

    def pair(a: int, b: int) -> list[int]:
        return [Fraction(a, b).numerator, Fraction(a, b).denominator]

    return pair(r.pp - 1, r.m + r.pp - 1), {
        "this is of the working time: the bubble is part of the step's time": pair(r.pp - 1, r.m),
        "pp - 1 of m + pp - 1 slots are idle": pair(r.pp - 1, r.m + r.pp),
        "not pp, but pp - 1 slots are idle": pair(r.pp, r.m + r.pp - 1),
        "this is the part in which it works": pair(r.m, r.m + r.pp - 1),
        "all stages wait equally long": pair(r.stage, r.m + r.stage),
    }


ANSWERS: Mapping[str, Callable[[Rank], Answer]] = {
    "dense": held, "experts": expert_held, "optimizer": state, "tp": on_tp, "pp": on_pp,
    "ep": on_ep, "data": on_data, "in_flight": in_flight, "bubble": bubble,
}  # fmt: skip
