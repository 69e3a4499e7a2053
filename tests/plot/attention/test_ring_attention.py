"""The stepper of ring attention: what met, where and when follows from spans, bytes from sends."""

from __future__ import annotations

from typing import Any

import pytest

from course_lib.plot import ring_attention_steps
from course_lib.plot.attention.ring_attention import RingAttentionDrawing
from course_lib.plot.attention.tiles import Extent, read_tiles
from course_lib.plot.player.style import VERMILLION, rank_color
from course_lib.trace import Ledger, Timeline

NAMES = {"contiguous": [(0,), (1,), (2,)], "zigzag": [(0, 5), (1, 4), (2, 3)]}


def written(kind: str, wrong: str = "") -> Timeline:
    """Ledgers of three ranks with four tokens a piece, as a ring would write them."""
    hands, ledgers = NAMES[kind], []
    for rank, hand in enumerate(hands):
        ledger = Ledger(rank)
        for hop in range(2 if wrong == "short" else 3):
            for query in hand:
                for key in hands[(rank - hop) % 3]:
                    word = "skip" if key > query and wrong != "future" else "attend"
                    ends = f"q{4 * query}:{4 * query + 4} k{4 * key}:{4 * key + 4}"
                    ledger.mark(f"{word} hop {hop} {ends}")
        ledgers.append(ledger)
    return Timeline(ledgers)


def test_a_frame_for_every_hop_and_one_before() -> None:
    player = ring_attention_steps(written("contiguous"))
    assert len(player.frames) == 4 and player.still == 2
    assert [frame.caption.split(".")[0] for frame in player.frames] == [
        "Before the first hop, every rank holds queries, keys and values of its own tokens",
        "Hop 0: every rank computes 1 tile",
        "Hop 1: 2 ranks compute 1 tile; idle: rank 0",
        "Hop 2: 1 rank computes 1 tile; idle: ranks 0, 1",
    ]


def test_pairs_are_counted_and_zigzag_divides_them_evenly() -> None:
    skewed, even = (read_tiles(written(kind)) for kind in NAMES)
    assert [skewed.pairs(rank, 2) for rank in range(3)] == [10, 26, 42]
    assert [even.pairs(rank, 2) for rank in range(3)] == [100, 100, 100]
    assert (skewed.needed(), skewed.in_a_row()) == (78, 42)
    assert (even.needed(), even.in_a_row()) == (300, 100)
    assert "42 pairs one after another; divided evenly it would be 26" in (
        ring_attention_steps(written("contiguous")).alt
    )


def test_cells_have_the_colour_of_the_rank_and_the_number_of_the_hop() -> None:
    drawing = RingAttentionDrawing(read_tiles(written("zigzag")))
    last = dict(zip(drawing.cells, drawing.frame(2).parts[1:], strict=False))
    first = dict(zip(drawing.cells, drawing.frame(0).parts[1:], strict=False))
    query, key = Extent(20, 24), Extent(4, 8)  # piece 5 is rank 0's, piece 1 rank 1's: two hops
    assert rank_color(0) in last[query, key] and ">2</text>" in last[query, key]
    assert "ink-edge" in last[query, key] and rank_color(0) not in first[query, key]
    assert "polygon" in first[query, query] and "ink-edge" not in last[query, query]
    assert "–" in last[key, query] and "#" not in last[key, query].replace("#000", "")


def test_rows_show_the_block_that_is_held_and_who_is_idle() -> None:
    drawing = RingAttentionDrawing(read_tiles(written("contiguous")))
    rows = drawing.frame(1).parts[-3:]
    assert [drawing.story.held(1, rank) for rank in range(3)] == [2, 0, 1]
    assert rank_color(2) in rows[0] and VERMILLION in rows[0] and ">idle<" in rows[0]
    assert "1 tile" in rows[1] and VERMILLION not in rows[1]
    assert "10" in rows[0] and "26" in rows[1]


def test_wrong_attention_is_shown_wrong() -> None:
    short = ring_attention_steps(written("contiguous", "short")).frames[-1].caption
    assert "Wrong: 62 of 78 pairs" in short
    future = ring_attention_steps(written("contiguous", "future")).frames[-1].caption
    assert "3 tiles of the future were computed." in future


def test_nothing_recorded_is_refused() -> None:
    with pytest.raises(ValueError, match="ring attention"):
        ring_attention_steps(Timeline([Ledger(0)]))
    with pytest.raises(ValueError, match="calls recorded: rank 0: 1, rank 1: 1, rank 2: 1"):
        ring_attention_steps(written("zigzag"), call=3)


def on_ranks(group: Any) -> dict[str, Any]:
    """Two forwards and backwards, of two sizes; returns this rank's ledger."""
    import torch

    from course_lib.parallel import SequenceLayout, ring_attention

    for length, kind in ((12, SequenceLayout.contiguous), (26, SequenceLayout.zigzag)):
        layout = kind(length, group.size)
        shape = (1, 2, layout.count(group.index), 8)
        q, k, v = (torch.ones(shape, requires_grad=True) for _ in range(3))
        ring_attention(q, k, v, layout, group).sum().backward()
    return group.ledger.to_dict()


def test_a_real_run(ranks: Any) -> None:
    timeline = Timeline(Ledger.from_dict(data) for data in ranks(on_ranks, 4))
    last, first = read_tiles(timeline), read_tiles(timeline, 0)
    assert (first.length, first.hops, last.length, last.hops) == (12, 4, 26, 4)
    assert [sum(story.pairs(r, 3) for r in range(4)) for story in (first, last)] == [78, 351]
    for rank in range(4):
        assert [first.held(hop, rank) for hop in range(4)] == [(rank - hop) % 4 for hop in range(4)]
        sent = [first.sent.get((rank, hop)) for hop in range(4)]
        assert sent == [((rank + 1) % 4, 2 * 2 * 3 * 8 * 4)] * 3 + [None]
    player = ring_attention_steps(timeline)
    assert "All 351 pairs of the causal mask are there." in player.frames[-1].caption
    assert "Rank 1 has tokens 4–7 and 20–22" in player.alt
    assert len(player._repr_html_()) < 90_000
