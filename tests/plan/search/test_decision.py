"""Twenty cases, what to use for each of them, and the number that decides it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from course_lib.plan.inputs.hardware import Link, parse_cluster
from course_lib.plan.inputs.models import model
from course_lib.plan.search.decision import Case, decide

ETHERNET = Link(50e-6, 1.25e9)  # 10 Gb/s for each GPU

# model, cluster, sequences of a step, tokens of each (0: the model's own), network, strategy
CASES = [
    ("gpt2-xl", "1xH100", 8, 0, None, "one GPU"),
    ("gpt2-xl", "8xH100", 64, 0, None, "DDP"),
    ("gpt2-xl", "64xA100", 64, 0, None, "DDP"),
    ("llama3.2-1b", "8xA100", 8, 0, None, "DDP"),
    ("gpt2-xl", "8xH100", 512, 0, None, "DDP + accumulation"),
    ("llama3-8b", "8xB200", 8, 0, None, "DDP + recomputation"),
    ("llama3-8b", "1xH100", 8, 0, None, "offload"),
    ("llama3-70b", "8xH100", 64, 0, None, "FSDP + offload"),
    ("llama3-8b", "8xH100", 8, 0, None, "FSDP"),
    ("llama3-8b", "8xH100", 64, 0, None, "FSDP + accumulation"),
    ("llama3-70b", "64xH100", 64, 0, None, "FSDP + recomputation"),
    ("llama3-8b", "64xH100", 64, 0, ETHERNET, "HSDP"),
    ("llama3-70b", "512xH100", 1024, 0, None, "FSDP + recomputation"),
    ("llama3-70b", "512xH100", 256, 0, None, "FSDP + TP"),
    ("llama3-70b", "128xH100", 512, 0, None, "FSDP + recomputation + accumulation"),
    ("llama3-70b", "512xH100", 1024, 0, ETHERNET, "TP + PP + ZeRO-1"),
    ("llama3-405b", "16384xH100", 2048, 0, None, "TP + PP + ZeRO-1"),
    ("megatron-1t", "3072xA100", 512, 0, None, "TP + PP + ZeRO-1"),
    ("llama3-8b", "64xH100", 64, 131072, None, "FSDP + CP + recomputation"),
    ("llama3.2-1b", "8xH100", 8, 1 << 20, None, "DDP + recomputation + CP"),
    ("mixtral-8x7b", "64xH100", 64, 4096, None, "FSDP + EP"),
    ("mixtral-8x22b", "512xH100", 512, 4096, None, "FSDP + EP + recomputation"),
]


def case_of(name: str, gpus: str, batch: int, sequence: int, between: Link | None) -> Case:
    config, cluster = model(name), parse_cluster(gpus)
    config = replace(config, sequence=sequence or config.sequence)
    return Case(config, replace(cluster, between=between or cluster.between), batch)


@pytest.mark.parametrize("row", CASES, ids=lambda row: f"{row[0]} on {row[1]}: {row[5]}")
def test_strategy(row: tuple[str, str, int, int, Link | None, str]) -> None:
    found = decide(case_of(*row[:5]))
    assert found.strategy == row[5]
    assert all(any(letter.isdigit() for letter in part.why) for part in found.advice[:1])


def test_reasons_name_what_decides() -> None:
    def why(word: str, *question: object) -> str:
        found = decide(case_of(*question))  # type: ignore[arg-type]
        return next(part.why for part in found.advice if part.word == word)

    assert "145 GB" in why("FSDP", "llama3-8b", "8xH100", 8, 0, None)
    assert "fewer than 512 GPUs" in why("TP", "llama3-70b", "512xH100", 256, 0, None)
    assert "64 sequences for each GPU" in why("accumulation", "gpt2-xl", "8xH100", 512, 0, None)
    assert "uses 13" in why("EP", "mixtral-8x7b", "64xH100", 64, 4096, None)
    assert "137 GB, 67 of them logits" in why("CP", "llama3-8b", "64xH100", 64, 131072, None)
    assert "2159 tokens per GPU would hide a gather, and a GPU has 1024" in why(
        "PP", "llama3-405b", "16384xH100", 2048, 0, None
    )


def test_a_gather_leaves_a_node_through_all_of_its_adapters() -> None:
    """The need of one adapter for a whole node would be eight times as many tokens."""
    config, made = model("llama3-405b"), parse_cluster("512xH100")
    slow = replace(made, between=replace(made.between, bandwidth=10e9))
    why = decide(Case(config, slow, 512)).advice[1].why  # 8192 tokens for each GPU
    assert "9931 tokens per GPU would hide a gather, and a GPU has 8192" in why
    assert decide(Case(config, made, 512)).strategy.startswith("FSDP")
    one = replace(slow, adapters=1)
    assert "79450 tokens per GPU" in decide(Case(config, one, 512)).advice[1].why


def test_tensor_parallelism_does_not_make_gathers_cheaper() -> None:
    """As many bytes leave a node, through the same adapters, for the same computation."""
    config, made = model("llama3-70b"), replace(parse_cluster("512xH100"), inside=Link(0, 1e12))
    slow = replace(made, between=Link(0, 5e9))
    for batch in (256, 512, 1024):
        assert "PP" in decide(Case(config, slow, batch)).strategy
    assert "PP" not in decide(Case(config, made, 256)).strategy
