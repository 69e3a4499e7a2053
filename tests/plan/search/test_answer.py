"""Plans as people ask for them: a model's name, a cluster in a word, an answer to read."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from course_lib.grade.cli import main
from course_lib.layout import Layout
from course_lib.plan import answer, model, parse_cluster
from course_lib.plan.inputs.calibration import FITTED, LARGEST, Fitted, band
from course_lib.plan.published.row import GPU_NAMES
from course_lib.plan.published.scores import rows
from course_lib.plan.search.answer import reasons
from course_lib.plan.search.planner import Refused

GPT3 = ["--model", "gpt3-175b", "--gpus", "1024xA100", "--global-batch", "1536"]


@pytest.mark.slow
def test_every_choice_is_what_was_asked_for_and_the_fastest_comes_first() -> None:
    found = answer("gpt3-175b", "1024xA100", 1536)
    assert len(found.plan.choices) == len(found.steps) == 8
    for choice, step in zip(found.plan.choices, found.steps, strict=True):
        assert choice.layout.gpus == 1024 and choice.layout.batch == 1536
        assert choice.memory.total < 0.9 * parse_cluster("1xA100").gpu.memory
        assert choice.seconds == step.seconds == pytest.approx(sum(step.parts.values()))
    seconds = [step.seconds for step in found.steps]
    assert seconds == sorted(seconds)


def test_the_text_has_the_table_the_reasons_and_how_far_it_may_be_off() -> None:
    found = answer("gpt3-175b", "1024xA100", 1536)
    said = found.text().splitlines()
    assert said[0].startswith("gpt3-175b: 174.6 billion parameters on 1024 A100-80, 8 in a node")
    assert (
        said[2].split()[:5] == ["pp", "dp", "ep", "cp", "tp"] and len({*map(len, said[2:11])}) == 1
    )
    best = found.plan.choices[0].layout
    assert said[3].split()[:5] == [*map(str, (best.pp, best.dp, best.ep, best.cp, best.tp))]
    text = " ".join(found.text().split())  # however it is folded
    assert "may be off by 9%. Within that band, 7 of the other layouts shown" in text
    slower = [one for one in found.plan.refused if one.times]
    assert slower and all(f"{one.times:.2f} times as long" in one.why for one in slower)
    limit = 1.09 / 0.91  # of the slow end of the first's band to the fast end of another's
    assert f"and {sum(one.times < limit for one in slower)} of those not shown" in text
    assert "tp 16 exceeds a node of 8" in text


def test_where_nothing_fits_it_says_what_to_do_instead() -> None:
    found = answer("llama3-405b", "8xA100", 8)
    assert found.plan.best is None
    assert "No layout fits." in found.text() and "offload" in found.decision.strategy


@pytest.mark.slow
def test_a_hundred_thousand_gpus_are_planned_with_a_warning() -> None:
    found = answer("llama3-405b", "100000xH100", 20000)
    assert found.plan.best is not None and found.plan.best.layout.gpus == 100_000
    assert "No run with experts, cp beyond 2, or more than 2048 H100" in found.text()


def test_bands_are_wider_where_nothing_was_published() -> None:
    largest: dict[str, int] = {}
    for row in rows():
        name = GPU_NAMES[row["gpu"]]
        largest[name] = max(largest.get(name, 0), int(row["n_gpus"]))
    assert largest == dict(LARGEST)
    assert band("H100", Layout(dp=2048)) == FITTED["H100"].band == 0.16
    assert band("H100", Layout(dp=2048, zero=3)) == 0.15
    for gpu, layout in (("H100", Layout(dp=4096)), ("H100", Layout(dp=8, cp=4)),
                        ("A100-80", Layout(dp=8, ep=8)), ("H200", Layout(dp=8))):  # fmt: skip
        assert band(gpu, layout) == Fitted().band == 0.25


def test_reasons_of_one_kind_are_one_line() -> None:
    found = reasons(
        [
            Refused(Layout(tp=16), "tp 16 exceeds a node of 8"),
            Refused(Layout(pp=64), "32 blocks are fewer than 64 stages"),
            Refused(Layout(tp=32), "tp 32 exceeds a node of 8"),
        ]
    )
    assert [line.split(maxsplit=1) for line in found] == [
        ["2", "tp 16: tp 16 exceeds a node of 8"],
        ["1", "pp 64: 32 blocks are fewer than 64 stages"],
    ]


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *GPT3, "--seq", "2048", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["gpus"] == 1024 and said["sequence"] == 2048 and said["batch"] == 1536
    assert all(0 < one["mfu"] <= one["hfu"] < 1 for one in said["choices"])
    assert said["choices"][0]["memory"]["total"] > said["choices"][0]["memory"]["optimizer"] > 0
    assert said["refused"] and said["advice"][0]["word"] == "FSDP"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--model", "gpt5"], "found: gpt2-xl, gpt3-175b"),
        (["--gpus", "8"], "found: no number and GPU with an x between them"),
        (["--gpus", "8xP100"], "found: A100-40, A100-80, H100"),
        (["--gpus", "0xH100"], "found: 0 GPUs"),
        (["--global-batch", "0"], "found: 0 sequences"),
        (["--seq", str(2**28)], "found: 268435456 tokens"),
        (["--tokens", "nan"], "asked: a bill with --tokens"),
        (["--price", "-3"], "found: -3"),
        (["--seq", "0"], "found: sequence = 0"),
        (["--precision", "int4"], "found: fp32, fp16, bf16, fp8"),
    ],
)
def test_the_command_refuses(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", *GPT3, *words]) == 2
    assert said in capsys.readouterr().err


def test_the_command_judges_a_layout_on_a_machine_of_ones_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine, config = tmp_path / "hardware.json", tmp_path / "config.json"
    machine.write_text(json.dumps({"like": "H100", "name": "mine", "adapters": 4}))
    config.write_text(json.dumps(asdict(model("llama2-7b"))))
    words = ["--config", str(config), "--hardware", str(machine), "--global-batch", "64"]
    assert main(["plan", *words, "--gpus", "16xH100"]) == 2  # it would be planned without the file
    assert "called mine there" in capsys.readouterr().err
    words += ["--gpus", "2x8xmine"]
    words += [
        "--layout",
        "tp8",
        "zero1",
        "--tokens",
        "1e12",
        "--price",
        "2",
    ]
    assert main(["plan", *words]) == 0
    said = capsys.readouterr().out
    assert "on 16 mine, 8 in a node" in said and "Your layout, dp2 tp8 zero1" in said
    assert "1e+12 tokens take" in said and "GPU-hours" in said and "The first in words:" in said
    assert main(["plan", *words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["bill"]["money"] == pytest.approx(2 * found["bill"]["gpu_hours"])
    assert found["verdict"]["layout"]["tp"] == 8 and found["words"]
    assert main(["plan", *words, "--layout", "tpx"]) == 2
