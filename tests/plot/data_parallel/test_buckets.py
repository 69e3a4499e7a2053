"""The stepper of a backward: states follow from the marks, bytes from the all-reduces."""

from __future__ import annotations

import re
from typing import Any

import pytest

from course_lib.plot import bucket_steps
from course_lib.plot.data_parallel.backward import read_backward
from course_lib.plot.data_parallel.buckets import CELL, BucketDrawing, two_lines
from course_lib.plot.player.style import BLUE, GREEN, ORANGE
from course_lib.trace import Ledger, Timeline


def states(timeline: Timeline) -> list[str]:
    """One letter a parameter (not ready, ready, on the Wire, arrived), one word a frame."""
    story = read_backward(timeline.rank(0))
    letter = {"not ready": "-", "ready": "r", "on the wire": "w", "arrived": "a"}
    return [
        "".join(letter[story.state(name, bucket, m)] for bucket in story.buckets
                for name in bucket.names)
        for m in range(len(story.marks) + 1)
    ]  # fmt: skip


def test_one_frame_a_mark_with_the_states_of_all_parameters(backward):
    assert states(backward) == ["----", "r---", "rr--", "ww--", "wwr-", "wwww", "aaww", "aaaa"]
    player = bucket_steps(backward)
    assert len(player.frames) == 8
    assert player.frames[4].caption.endswith("Ready: 3 of 3 gradients; under way: 1 all-reduce.")
    assert "all-reduce, 48 B, begins" in player.frames[3].caption
    assert "1 of its gradients were never ready here" in player.frames[5].caption


def test_colours_are_those_of_the_states(backward):
    seen = {"": 0, ORANGE: 0, BLUE: 0, GREEN: 0}
    for frame in bucket_steps(backward).frames:
        for cell in frame.parts[1:-1]:
            color = re.search(f'width="{CELL - 2}"[^>]*? fill="(#[^"]+)"', cell)
            seen[color[1] if color else ""] += 1
    letters = "".join(states(backward))
    assert list(seen.values()) == [letters.count(c) for c in "-rwa"]


def test_cells_stand_in_the_order_in_which_gradients_came(backward):
    first = read_backward(backward.rank(0)).buckets[0]
    assert first.names == ["head.weight", "blocks.0.ffn.weight"]  # the launch names them otherwise
    assert (first.launch, first.arrived, first.nbytes) == (3, 6, 48)


def test_the_description_counts_early_launches(backward):
    alt = bucket_steps(backward).alt
    assert "3 gradients in 2 buckets. 1 of the all-reduces began before the last gradient" in alt
    assert "launched at mark 3, with 2 gradients ready, arrived at mark 6" in alt


def test_the_last_of_several_backwards_is_shown(ledger_of):
    story = ["ready a", "launch 0: a", "arrived 0", "ready b", "launch 0: b", "ready c"]
    player = bucket_steps(Timeline([ledger_of(story)]))
    assert [frame.caption.split(".")[0] for frame in player.frames[1:]] == [
        "The gradient of b is complete", "Bucket 0 leaves: its all-reduce begins",
        "The gradient of c is complete"]  # fmt: skip
    assert "never arrived" in player.alt


def test_marks_without_buckets_are_refused(ledger_of):
    with pytest.raises(ValueError, match="1 marks `ready`, no mark `launch`"):
        bucket_steps(Timeline([ledger_of(["ready a"])]))


def test_half_a_backward_is_refused(ledger_of):
    with pytest.raises(ValueError, match="no `launch 0` before it"):
        bucket_steps(Timeline([ledger_of(["ready b", "launch 1: b", "arrived 0", "arrived 1"])]))


def test_long_names_are_cut_and_modules_stand_above():
    assert two_lines("blocks.1.attention.query.weight") == ("blocks.1", "attention.query")
    assert two_lines("head.bias") == ("head", "bias")
    assert two_lines("norm.weight") == ("norm", "")
    assert len(two_lines("x." + "long" * 9)[1]) == 16


def test_many_buckets_stay_small_and_inside_the_picture(ledger_of):
    names = [f"blocks.{i // 9}.attention.weight{i}" for i in range(38)]
    story = [
        line for i, name in enumerate(names) for line in (f"ready {name}", f"launch {i}: {name}")
    ]
    story += [f"arrived {i}" for i in range(38)]
    timeline = Timeline([ledger_of(story)])
    player = bucket_steps(timeline)
    assert len(player.frames) == 115 and len(player._repr_html_()) < 300_000
    corners = [corner for _, _, corner in BucketDrawing(read_backward(timeline.rank(0))).cells()]
    assert len(set(corners)) == 38
    assert all(x + CELL < player.size[0] for x, _ in corners)


def on_ranks(group: Any, name: str) -> dict[str, Any]:
    """One backward of a small model; returns this rank's ledger."""
    import torch
    from torch import nn

    from course_lib.parallel import BucketedDDP, OverlapDDP

    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(4)))
    ddp = OverlapDDP(model, group) if name == "overlap" else BucketedDDP(model, group, 300, 300)
    for _ in range(2):
        ddp(torch.ones(2, 8)).sum().backward()
    return group.ledger.to_dict()


@pytest.mark.parametrize(("name", "buckets"), [("overlap", 8), ("bucketed", 4)])
def test_a_real_backward_is_shown_to_its_end(ranks, name, buckets):
    timeline = Timeline(Ledger.from_dict(data) for data in ranks(on_ranks, 2, name))
    story = read_backward(timeline.rank(1))
    assert len(story.buckets) == buckets and len(story.ready) == 8
    assert len(story.marks) == 8 + 2 * buckets
    assert sum(bucket.nbytes for bucket in story.buckets) == 4 * (64 + 8) * 4
    assert story.early >= buckets - 1  # all but the last, while backward went on
    assert states(timeline)[-1] == "a" * 8
    assert bucket_steps(timeline, 0)._repr_html_() == bucket_steps(
        timeline, 1
    )._repr_html_().replace("rank 1", "rank 0")
