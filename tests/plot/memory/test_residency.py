"""The stepper of units: what is resident, computing or reduced follows from marks and spans."""

from __future__ import annotations

from typing import Any

from course_lib.plot import residency_steps
from course_lib.plot.memory.residency import Chart, runs
from course_lib.plot.memory.units import read_moments, unit_states
from course_lib.plot.player.style import BLUE, PURPLE, SKY
from course_lib.trace import Ledger, Timeline

SHORT = {"": "-", "arriving": "a", "resident": "r", "computing forward": "F",
         "computing backward": "B", "gradient being reduced": "g"}  # fmt: skip


def chart(timeline: Timeline, *names: str) -> Chart:
    return Chart(list(names), read_moments(timeline.rank(0)), "sharded")


def row(timeline: Timeline, name: str, *names: str) -> str:
    """The states of a unit, one letter a frame."""
    return "".join(SHORT[now[name].state] for now in chart(timeline, *names).states)


def test_states_follow_from_marks_spans_and_reduce_scatters(units):
    assert row(units, "a", "a", "b") == "-arrFr-----aaaarBrr-g-"
    assert row(units, "b", "a", "b") == "---aaaarFrBBr-gggg----"


def test_units_held_are_counted_with_those_that_arrive(units):
    held = "".join(str(count) for count in chart(units, "a", "b").held)
    assert held == "0112221111122111111000"


def test_frames_show_states_and_counts(units):
    player = residency_steps(units)
    assert len(player.frames) == 22 and player.still == 11  # b computes, a arrives
    third = player.frames[3]
    assert BLUE in third.parts[1] and SKY in third.parts[2]
    assert "units resident: 2 (1 arriving)" in third.parts[3]
    assert "most so far: 2" in player.frames[-1].parts[3]
    assert PURPLE in player.frames[-2].parts[1] and "sharded" in player.frames[-1].parts[2]


def test_captions_say_what_happens_beside(units):
    captions = [frame.caption for frame in residency_steps(units).frames]
    assert captions[11] == (
        "Moment 11: a begins to arrive, while b is computing backward. "
        "Units: 2 resident or arriving, at most 2 so far."
    )


def test_the_description_counts_overlap_and_the_peak(units):
    alt = residency_steps(units).alt
    assert "At most 2 were resident or arriving at once, first a, b." in alt
    assert "1 of 3 gathers began while a unit computed. At the end 0 are resident." in alt


def test_away_has_its_own_word(units):
    player = residency_steps(units, away="on the host")
    assert "on the host" in player.frames[0].parts[1] and "sharded" not in player.background


def test_a_unit_that_was_here_before_the_record_is_resident(ledger_of):
    story = ["begin forward a", "end forward a", "free a", "gather a", "gathered a"]
    timeline = Timeline([ledger_of(story)])
    assert row(timeline, "a", "a") == "rFr-ar"


def test_a_reduction_that_sends_nothing_ends_at_once_and_an_open_one_does_not(ledger_of):
    story = ["gather a", "gathered a", "reduce a", "free a", "reduce a"]
    states = unit_states(["a"], read_moments(ledger_of(story)))
    assert "".join(SHORT[now["a"].state] for now in states) == "-argr-g-"
    story = ["gather a", "reduce a", "begin reduce_scatter 8", "free a"]
    states = unit_states(["a"], read_moments(ledger_of(story, calls="reduce_scatter")))
    assert "".join(SHORT[now["a"].state] for now in states) == "-agg"


def test_spans_of_other_names_are_left_out(ledger_of):
    story = ["gather a", "gathered a", "begin forward", "end forward", "begin forward b",
             "end forward b", "free b", "free a"]  # fmt: skip
    assert len(read_moments(ledger_of(story))) == 3


def test_stretches_of_equal_values():
    assert list(runs([9, 1, 1, 2, 1])) == [(1, 3, 1), (3, 4, 2), (4, 5, 1)]
    assert list(runs([9])) == []


def test_sixty_frames_are_small(ledger_of):
    story = []
    for unit in [*range(7), *reversed(range(7))]:
        story += [f"gather blocks.{unit}", f"gathered blocks.{unit}",
                  f"begin forward blocks.{unit}", f"end forward blocks.{unit}",
                  f"free blocks.{unit}"]  # fmt: skip
    player = residency_steps(Timeline([ledger_of(story)]))
    assert len(player.frames) == 71 and len(player._repr_html_()) < 150_000


def on_ranks(group: Any) -> dict[str, Any]:
    """A forward and a backward of FSDP; returns this rank's ledger."""
    import torch
    from torch import nn

    from course_lib.parallel import FSDP

    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(4)))
    fsdp = FSDP(model, group, units=list(model)[1:])
    fsdp(torch.ones(2, 8)).sum().backward()
    return group.ledger.to_dict()


def test_a_real_run_of_fsdp_ends_sharded(ranks):
    timeline = Timeline(Ledger.from_dict(data) for data in ranks(on_ranks, 2))
    moments = read_moments(timeline.rank(0))
    player = residency_steps(timeline)
    assert sum(m.kind == "reduced" for m in moments) == 4
    units = list(dict.fromkeys(m.unit for m in moments if m.kind == "gather"))
    story = Chart(units, moments, "sharded")
    assert {now.state for now in story.states[-1].values()} == {""}
    assert 2 <= max(story.held) <= 3  # the root and one or two layers
    assert player.frames[-1].caption.startswith(f"Moment {len(moments)}: ")


def test_the_legend_names_only_what_occurs(units, ledger_of):
    plain = Timeline([ledger_of(["gather a", "gathered a", "begin forward a", "end forward a"])])
    assert "gradient being reduced" in residency_steps(units).background
    assert "gradient being reduced" not in residency_steps(plain).background
