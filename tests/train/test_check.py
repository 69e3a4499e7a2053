"""A run that cannot work is refused before it starts, with a reason and a neighbour that can."""

from __future__ import annotations

import shlex
from dataclasses import replace
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import pytest

from course_lib.comm import CommError, Group, Mesh
from course_lib.model import Transformer
from course_lib.trace import Refusal
from course_lib.train import ConfigError, RunConfig, check, lay_out
from course_lib.train.command.check import refuse_without_room
from course_lib.train.command.nearest import nearest
from course_lib.train.command.problems import find_problems
from course_lib.train.run import main, parse

ROOT = Path(__file__).resolve().parents[2]

REFUSED = [
    ({"pp": 2, "dp": 2, "tp": 2}, 4, "a world of 4 ranks", "--dp 2 --tp 2"),
    ({"tp": 8}, None, "4 query and 4 key-value heads", "--dp 2 --tp 4"),
    ({"tp": 3, "heads": 6, "kv_heads": 2, "hidden": 96}, None, "6 query and 2 key-value", "--tp 2"),
    ({"pp": 8}, None, "4 layers", "--pp 4 --dp 2"),
    ({"pp": 2, "schedule": "interleaved", "chunks": 4, "micro_batches": 2}, None, "4 layers",
     "--pp 2"),
    ({"pp": 2, "zero": 2}, None, "a pipeline of 2 ranks", "--zero 1"),
    ({"pp": 2, "zero": 3, "schedule": "zb-h1"}, None, "backwards come in halves", "--pp 2 --zero"),
    ({"dp": 2, "zero": 3, "experts": 4}, None, "only some of the ranks have", "--zero 2"),
    ({"pp": 2, "schedule": "dualpipe-v", "micro_batches": 4, "zero": 3, "tied": True}, None,
     "both ends of a tied embedding on one rank", "--pp 2 --zero 3 --micro-batches 4 --tied"),
    ({"ep": 2}, None, "a dense model", "--dp 2"),
    ({"ep": 8, "experts": 4}, None, "4 experts", "--ep 4"),
    ({"dp": 3}, None, "3 ranks (dp × ep)", "--batch 33"),
    ({"dp": 3, "batch": 16}, None, "3 ranks (dp × ep)", "--dp 3 --batch 15"),
    ({"pp": 5}, None, "4 layers", "--nproc-per-node 4 -m course_lib.train.run --pp 4"),
    ({"pp": 5}, 5, "4 layers", "--pp 4"),
    ({"cp": 2, "tp": 2, "sequence": 126, "sequence_parallel": True}, None, "63 tokens", "--tp 2"),
    ({"cp": 2, "mask_documents": True}, None, "ring attention has no such mask", "--dp 2"),
    ({"tp": 2, "experts": 4, "sequence_parallel": True}, None, "4 experts", "--tp 2 --experts"),
    ({"pp": 4, "layers": 8, "schedule": "interleaved", "micro_batches": 2}, None,
     "micro-batches", "--micro-batches 4"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "world", "found", "near"), REFUSED, ids=str)
def test_refuses(options: dict[str, Any], world: int | None, found: str, near: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check(RunConfig(**options), world)
    said = str(caught.value)
    assert said.startswith("asked: ") and "\nfound: " in said and found in said
    assert f"the nearest run that works:\n{'torchrun' if world != 1 else 'python'}" in said
    assert near in said.replace(" \\\n   ", "")  # as a shell reads it
    assert caught.value.nearest is not None
    check(caught.value.nearest)


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"tp": 0}, "a number below 1"),
        ({"schedule": "2f2b"}, "gpipe, 1f1b"),
        ({"precision": "fp4"}, "fp32, bf16"),
        ({"zero": 4}, "0, 1, 2, 3"),
        ({"rate": -1.0}, "not above 0"),
        ({"save_every": 5}, "no --folder"),
        ({"folder": " "}, "a name of blanks"),
        ({"hidden": 100, "heads": 3}, "a width of 100"),
        ({"experts": 2, "top_k": 3}, "2 experts"),
        ({"seed": 99999999999999999999999}, "a number above"),
        ({"seed": -1}, "a number below 0"),
        ({"rate": float("inf")}, "no finite number"),
        ({"decay": float("nan")}, "no finite number"),
        ({"decay": -0.1}, "a number below 0"),
        ({"max_norm": float("nan")}, "no finite number"),
        ({"model_file": "x.json", "layers": 3}, "--layers"),
        ({"data": "/no/such/folder"}, "no such folder"),
        ({"data": "x" * 300}, "no such folder"),
        ({"beta1": 1.0}, "not below 1"),
        ({"beta2": 1.5}, "not below 1"),
        ({"dp": 2.0}, "a value of float"),
        ({"steps": "10"}, "a value of str"),
        ({"tied": 1}, "this option is of bool"),
        ({"heads": 3}, "heads must divide the width"),
        ({"scale_power": 2000}, "a number above 127"),
        ({"weights_from": "/no/such/folder"}, "neither model.safetensors nor"),
    ],
    ids=str,
)
def test_refuses_what_has_no_neighbour(options: dict[str, Any], found: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check(RunConfig(**options))
    assert found in str(caught.value) and caught.value.nearest is None


def test_a_model_without_room_is_refused() -> None:
    refuse_without_room(RunConfig(), 4)
    with pytest.raises(Refusal, match="4 ranks that each build a model of"):
        refuse_without_room(RunConfig(ffn=2**31 - 1), 4)


def everything(group: Group, words: list[tuple[Any, ...]]) -> list[tuple[str, str]]:
    """For each config, what `check` says of it, and what laying the model out says."""
    answers: list[tuple[str, str]] = []
    meshes: dict[str, Mesh] = {}
    for axes, zero, schedule, sequence, experts in words:
        config = RunConfig(
            **axes, zero=zero, schedule=schedule, sequence_parallel=sequence, experts=experts,
            layers=2, hidden=16, heads=2, kv_heads=1, ffn=8, sequence=6, micro_batches=2, batch=8,
        )  # fmt: skip
        mesh = meshes.get(str(axes)) or Mesh(group, axes)
        meshes[str(axes)] = mesh  # its groups are made once
        before = "; ".join(problem.found for problem in find_problems(config, group.size))
        try:
            whole = Transformer(config.model)
            lay_out(whole, mesh, config.make_schedule(), sequence=sequence, zero=zero)
            answers.append((before, ""))
        except (CommError, ValueError) as error:
            answers.append((before, str(error)))
    return answers


@pytest.mark.slow
def test_says_before_what_the_ranks_would_say(ranks: Any) -> None:
    """Every way to lay four ranks out: refused here if and only if the course refuses it there."""
    meshes = [
        dict(zip(("pp", "dp", "ep", "cp", "tp"), sizes, strict=True))
        for sizes in product((1, 2, 4), repeat=5)
        if prod(sizes) == 4
    ]
    words = list(product(meshes, (0, 2, 3), ("1f1b", "zb-v"), (False, True), (0, 2)))
    answers = ranks(everything, 4, words)[0]
    for asked, (before, there) in zip(words, answers, strict=True):
        dense = not asked[4] and asked[0]["ep"] > 1  # useless, and so refused here alone
        assert bool(before) == bool(there) or (dense and before), (asked, before, there)
    refused = sum(bool(before) for before, _ in answers)
    assert 0.2 * len(words) < refused < 0.9 * len(words), "both are among them"


def test_the_nearest_changes_as_little_as_it_can() -> None:
    asked = RunConfig(pp=4, dp=4, tp=16, layers=8, heads=8, micro_batches=4, batch=64)
    other = nearest(asked)
    assert other is not None and other.world == asked.world
    assert (other.pp, other.dp, other.tp) == (4, 8, 8), "tp's ranks go to dp"
    assert replace(other, dp=4, tp=16) == asked, "and nothing else changes"


def test_the_nearest_is_found_without_making_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was half a minute for as many ranks, on each of them."""
    looked: list[RunConfig] = []

    def counted(config: RunConfig) -> Any:
        looked.append(config)
        return find_problems(config)

    monkeypatch.setattr("course_lib.train.command.nearest.find_problems", counted)
    asked = RunConfig(dp=3, tp=3)
    other = nearest(asked, 2520)
    assert other is not None and other == replace(asked, pp=2, dp=3, cp=105, tp=4, batch=33)
    assert len(looked) < 1000


def test_a_name_that_looks_like_an_option() -> None:
    config = RunConfig(folder="-runs", data="--dp")
    words = shlex.split(config.options())
    assert parse(words)[0] == config


def test_command_line() -> None:
    config = RunConfig(pp=2, tp=2, zero=1, precision="bf16", sequence_parallel=True, rate=0.01)
    words = shlex.split(config.command().replace(" \\\n   ", ""))  # as a shell reads it
    assert words[:5] == ["torchrun", "--nproc-per-node", "4", "-m", "course_lib.train.run"]
    assert parse(words[5:])[0] == config
    assert RunConfig().command() == "python -m course_lib.train.run"


def test_command_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check", "--tp", "8"]) == 2
    assert "the nearest run that works:\ntorchrun --nproc-per-node 8" in capsys.readouterr().err
    assert main(["--check", "--tp", "2"]) == 0
    assert "on 2 ranks" in capsys.readouterr().out
    assert main(["--tp", "2"]) == 2, "without torchrun there is one process"
    assert "torchrun --nproc-per-node 2" in capsys.readouterr().out


def test_the_slurm_script_asks_for_what_can_work() -> None:
    text = (ROOT / "course_lib/train/command/other_tools/slurm.sbatch").read_text()
    command = text[text.index("-m course_lib.train.run") :].replace("\\\n", " ")
    config, _ = parse(shlex.split(command)[2:])
    nodes = int(text.partition("#SBATCH --nodes=")[2].split()[0])
    check(config, nodes * int(text.partition("--gpus-per-node=")[2].split()[0]))
    assert config.resume and config.save_every, "a job that Slurm starts again goes on"
