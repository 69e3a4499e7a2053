"""Context parallelism: equal to one process however the sequence is cut, bytes to the byte."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from course_lib.comm import CommError, all_reduce
from course_lib.model import ModelConfig, Transformer
from course_lib.parallel import (
    SequenceLayout,
    join_sequence,
    ring_attention,
    shard_sequence,
    ulysses_attention,
)
from course_lib.parallel.context.context_parallel import Piece
from course_lib.trace.memory import LiveMemory

LAYOUTS = {"contiguous": SequenceLayout.contiguous, "zigzag": SequenceLayout.zigzag}
TILE = re.compile(r"(attend|skip) (back )?hop (\d+) q(\d+):(\d+) k(\d+):(\d+)")


def close(got: Any, expected: Any) -> None:
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-12)


# --- who holds what ------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", list(LAYOUTS))
@pytest.mark.parametrize(("length", "size"), [(1, 1), (16, 2), (7, 3), (33, 4), (5, 4), (4, 4)])
def test_every_position_has_one_owner(kind: str, length: int, size: int) -> None:
    layout = LAYOUTS[kind](length, size)
    whole = torch.arange(3 * length).view(3, length)
    shards = [shard_sequence(whole, 1, layout, index) for index in range(size)]
    assert all(shard.shape[1] == layout.count(i) >= 1 for i, shard in enumerate(shards))
    for index, shard in enumerate(shards):
        assert shard[0].equal(layout.positions(index))
    assert join_sequence(shards, -1, layout).equal(whole)
    assert (layout.size, layout.length) == (size, length)


def test_pieces_are_those_of_tensor_split() -> None:
    pieces = torch.arange(33).tensor_split(8)
    layout = SequenceLayout.zigzag(33, 4)
    for index in range(4):
        assert layout.positions(index).equal(torch.cat([pieces[index], pieces[7 - index]]))
    assert SequenceLayout.contiguous(33, 4).positions(1).equal(torch.arange(33).tensor_split(4)[1])


@pytest.mark.parametrize(("length", "size"), [(64, 4), (67, 4), (18, 3)])
def test_zigzag_balances_the_pairs_of_a_causal_mask(length: int, size: int) -> None:
    def pairs(layout: SequenceLayout) -> list[int]:
        return [int((layout.positions(index) + 1).sum()) for index in range(size)]

    tile = (-(-length // (2 * size))) ** 2
    balanced = pairs(SequenceLayout.zigzag(length, size))
    assert sum(balanced) == length * (length + 1) // 2
    assert max(balanced) - min(balanced) <= (tile if length % (2 * size) else 0)
    skewed = pairs(SequenceLayout.contiguous(length, size))
    assert max(skewed) - min(skewed) > 4 * tile


def test_a_sequence_that_is_too_short_or_another_is_refused() -> None:
    with pytest.raises(CommError, match="a sequence of 3 tokens cut over 4 ranks"):
        SequenceLayout.zigzag(3, 4)
    with pytest.raises(CommError, match="no rank"):
        SequenceLayout.contiguous(3, 0)
    layout = SequenceLayout.contiguous(8, 2)
    with pytest.raises(CommError, match="with 2 along dim 0"):
        shard_sequence(torch.zeros(2, 8), 0, layout, 0)
    with pytest.raises(CommError, match=r"shards of \[4, 3\] tokens"):
        join_sequence([torch.zeros(4), torch.zeros(3)], 0, layout)


@pytest.mark.parametrize(
    "hands",
    [[[(0, 3)], [(2, 4)]], [[(0, 2)], [(4, 2)]], [[(1, 3)]], [[(0, 3)], []], [[(0, 3), (3, 0)]]],
    ids=["twice", "a gap", "no first", "none", "an empty piece"],
)
def test_a_layout_of_ones_own_deals_out_every_position_once(hands: Any) -> None:
    """Ring attention takes any two pieces for the same, or one wholly before the other."""
    with pytest.raises(CommError, match="one owner"):
        SequenceLayout(tuple(tuple(Piece(*pair) for pair in hand) for hand in hands))


# --- attention -----------------------------------------------------------------------------------
def inputs(
    length: int, heads: int, kv_heads: int, shift: float = 0.0, dtype: torch.dtype = torch.float64
) -> list[torch.Tensor]:
    """q, k, v and the weights of the loss; q, k, v lie in memory as the model makes them.

    A shift adds its square, divided by √8, to every score: exponents would be infinite.
    """
    generator = torch.Generator().manual_seed(length)
    drawn = [
        torch.randn(2, length, count, 8, generator=generator, dtype=torch.float64).transpose(1, 2)
        for count in (heads, kv_heads, kv_heads, heads)
    ]
    for tensor in drawn[:2]:
        tensor[..., 0] += shift
    return [tensor.to(dtype) for tensor in drawn]


def alone(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """One process: the attention and its three gradients."""
    q, k, v = (t.clone().requires_grad_() for t in tensors[:3])
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    (out * tensors[3]).sum().backward()
    return [out.detach(), q.grad, k.grad, v.grad]


def cut(group: Any, layout: SequenceLayout, attend: Any, tensors: list[torch.Tensor]) -> Any:
    """The same on the ranks; every second tensor is not contiguous."""
    mine = [shard_sequence(t, 2, layout, group.index) for t in tensors]
    q, k, v = mine[0], mine[1].transpose(2, 3).contiguous().transpose(2, 3), mine[2]
    leaves = [t.detach().requires_grad_() for t in (q, k, v)]
    out = attend(*leaves, layout=layout, group=group)
    (out * mine[3]).sum().backward()
    return [out.detach(), *(leaf.grad for leaf in leaves)]


CASES = [(17, 4, 4), (24, 12, 12), (26, 24, 12)]


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_attention_and_gradients_are_those_of_one_process(ranks: Any, world: int) -> None:
    def run(group: Any) -> Any:
        results = {}
        for case in [*CASES, (11, 6, 1)]:
            for kind in LAYOUTS:
                layout = LAYOUTS[kind](case[0], group.size)
                results["ring", kind, case] = cut(group, layout, ring_attention, inputs(*case))
                if not (case[1] % group.size or case[2] % group.size):
                    key = "ulysses", kind, case
                    results[key] = cut(group, layout, ulysses_attention, inputs(*case))
        return results

    results = ranks(run, world)
    assert {key[0] for key in results[0]} == {"ring", "ulysses"}
    for _, kind, case in results[0]:
        layout = LAYOUTS[kind](case[0], world)
        for way in ("ring", "ulysses"):
            if (way, kind, case) in results[0]:
                shards = zip(*(result[way, kind, case] for result in results), strict=True)
                whole = [join_sequence(list(part), 2, layout) for part in shards]
                close(whole, alone(inputs(*case)))


def test_a_batch_without_sequences(ranks: Any) -> None:
    def run(group: Any) -> None:
        layout = SequenceLayout.zigzag(7, group.size)
        tensors = [t[:0] for t in inputs(7, 4, 2)]
        for attend in (ring_attention, ulysses_attention):
            out, *grads = cut(group, layout, attend, tensors)
            assert out.shape == (0, 4, layout.count(group.index), 8)
            assert [g.shape[1] for g in grads] == [4, 2, 2]

    ranks(run, 2)


def test_large_scores_and_narrow_dtypes(ranks: Any) -> None:
    cases = [(torch.float64, 100.0, 1e-9), (torch.float32, 20.0, 2e-4), (torch.bfloat16, 0.0, 4e-2)]

    def run(group: Any) -> Any:
        layout = SequenceLayout.zigzag(19, group.size)
        return [
            cut(group, layout, ring_attention, inputs(19, 4, 2, shift, dtype))
            for dtype, shift, _ in cases
        ]

    results = ranks(run, 3)
    for number, (dtype, shift, tolerance) in enumerate(cases):
        expected = alone([t.double() for t in inputs(19, 4, 2, shift, dtype)])
        shards = zip(*(result[number] for result in results), strict=True)
        for part, exact in zip(shards, expected, strict=True):
            whole = join_sequence(list(part), 2, SequenceLayout.zigzag(19, 3))
            assert whole.dtype == dtype and whole.isfinite().all()
            gap = (whole.double() - exact).abs().max() / exact.abs().max()
            assert gap < tolerance


# --- what it costs -------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("length", [24, 27])
def test_ring_bytes_are_the_formulas(ranks: Any, length: int, dtype: torch.dtype) -> None:
    def run(group: Any) -> Any:
        layout = SequenceLayout.contiguous(length, group.size)
        cut(group, layout, ring_attention, inputs(length, 6, 2, dtype=dtype))
        sends = [e for e in group.ledger.events if e.op == "send"]
        return [(e.peer, e.step, e.chunk, e.sent) for e in sends]

    world, token = 4, 2 * 2 * 2 * 8  # K and V, B, K, C
    layout = SequenceLayout.contiguous(length, world)
    given = max(4, dtype.itemsize)
    for index, sends in enumerate(ranks(run, world)):
        assert {peer for peer, *_ in sends} == {(index + 1) % world}
        there = [(hop, (index - hop) % world) for hop in range(3)]
        back = [there[0], there[1], (1, (index - 1) % world), there[2], (2, (index - 2) % world),
                (3, (index - 3) % world)]  # fmt: skip
        widths = [dtype.itemsize] * 5 + [given, dtype.itemsize, given, given]
        assert sends == [
            ((index + 1) % world, hop, owner, token * layout.count(owner) * width)
            for (hop, owner), width in zip([*there, *back], widths, strict=True)
        ]
        if length % world == 0:
            whole = token * length * (world - 1) // world
            assert sum(s[-1] for s in sends) == whole * (2 * dtype.itemsize + given)


def test_ulysses_bytes_are_the_formulas(ranks: Any) -> None:
    def run(group: Any) -> Any:
        layout = SequenceLayout.zigzag(27, group.size)
        cut(group, layout, ulysses_attention, inputs(27, 8, 4))
        return [(e.op, e.sent) for e in group.ledger.calls()]

    layout, world = SequenceLayout.zigzag(27, 4), 4
    for index, calls in enumerate(ranks(run, world)):
        tokens, row = layout.count(index), 2 * 8 * 8  # B, C, bytes
        there, back = 3 * (8 + 4 + 4) // 4 * tokens * row, 8 // 4 * (27 - tokens) * row
        back_there, back_home = 3 * 8 // 4 * tokens * row, 16 // 4 * (27 - tokens) * row
        # Forward: out as q, k, v, back as the result; backward: the same two, the other way.
        assert calls == [("all_to_all", sent) for sent in (there, back, back_there, back_home)]


def peaks(group: Any, tokens: int, kind: str) -> tuple[int, int]:
    """The most that a forward and then a backward hold beside their inputs, in bytes."""
    layout = LAYOUTS[kind](tokens * group.size, group.size)
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 2, tokens, 16, generator=generator) for _ in range(3))
    for leaf in (q, k, v):
        leaf.requires_grad_()
    with LiveMemory() as memory:
        out = ring_attention(q, k, v, layout, group)
        forward, memory.peak = memory.peak, memory.now
        out.sum().backward()
        return forward, memory.peak


def test_memory_has_no_scores_of_the_whole_sequence_and_two_blocks(ranks: Any) -> None:
    tokens = 256
    block = 2 * 2 * tokens * 16 * 4  # K and V, heads, C, bytes
    tile = 2 * tokens * tokens * 4
    for kind, pieces in (("contiguous", 1), ("zigzag", 2)):
        found = {world: ranks(peaks, world, tokens, kind) for world in (3, 4)}
        scores = tile // pieces**2
        for world in (3, 4):
            for forward, backward in found[world]:
                # Scores, their mask and what is computed from them; a copy of one's own block, two
                # that travel; queries, sums and results are half a block each.
                assert forward < 1.6 * scores + 3 * block + 6 * block / 2
                assert backward < 2.6 * scores + 3 * block + 4 * block + 8 * block / 2
                assert backward < 2 * (tokens * world) ** 2 * 4, "scores of the whole sequence"
        # Nothing grows with the number of ranks, so no more blocks are held for more of them.
        for three, four in zip(found[3][-1], found[4][-1], strict=True):
            assert abs(three - four) < block / 2


def tiles_of(group: Any, kind: str, way: str) -> list[list[tuple[str, ...]]]:
    """The spans of every hop, as (word, q start, q stop, k start, k stop)."""
    layout = LAYOUTS[kind](8 * 2 * group.size, group.size)
    cut(group, layout, ring_attention, inputs(layout.length, 2, 1))
    hops: list[list[tuple[str, ...]]] = [[] for _ in range(group.size)]
    for span in group.ledger.spans:
        match = TILE.fullmatch(span.name)
        if match and (match[2] or "") == way:
            hops[int(match[3])].append((match[1], *match.groups()[3:]))
    return hops


@pytest.mark.parametrize("way", ["", "back "])
def test_zigzag_gives_every_rank_the_same_work_at_every_hop(ranks: Any, way: str) -> None:
    for hops in ranks(tiles_of, 4, "zigzag", way):
        counts = [sum(tile[0] == "attend" for tile in hop) for hop in hops]
        assert counts == [3, 2, 2, 2] and all(len(hop) == 4 for hop in hops)
    counts = [
        [sum(tile[0] == "attend" for tile in hop) for hop in hops]
        for hops in ranks(tiles_of, 4, "contiguous", way)
    ]
    assert counts == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]


def test_the_next_block_travels_while_this_one_is_computed(ranks: Any) -> None:
    def run(group: Any) -> Any:
        layout = SequenceLayout.zigzag(64, group.size)
        mine = [shard_sequence(t, 2, layout, group.index) for t in inputs(64, 2, 2)[:3]]
        ring_attention(*mine, layout=layout, group=group)
        spans = [(TILE.fullmatch(s.name), s) for s in group.ledger.spans]
        return (
            [(e.step, e.begin, e.end) for e in group.ledger.events],
            [(int(m[3]), s.begin, s.end) for m, s in spans if m and m[1] == "attend"],
        )

    for events, spans in ranks(run, 3):
        assert len(events) == 4
        for hop, begin, end in events:
            assert begin < min(b for h, b, _ in spans if h == hop)
            assert end > max(e for h, _, e in spans if h == hop)


# --- the model -----------------------------------------------------------------------------------
CONFIG = ModelConfig(layers=2, hidden=32, heads=4, kv_heads=2, ffn=44, sequence=22)


def train(group: Any, kind: str, way: Any) -> Any:
    """Three steps of AdamW: whole gradients of the first, weights after the last."""
    model = Transformer(CONFIG).double()
    layout = LAYOUTS[kind](22, group.size) if group else SequenceLayout.contiguous(22, 1)
    index = group.index if group else 0
    for block in model.blocks if group else ():
        block.attention.attend = partial(way, layout=layout, group=group)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    first: list[torch.Tensor] = []
    for step in range(3):
        generator = torch.Generator().manual_seed(step)
        batch = torch.randint(0, 256, (3, 23), generator=generator)
        tokens, targets = (
            shard_sequence(t, 1, layout, index) for t in (batch[:, :-1], batch[:, 1:])
        )
        optimizer.zero_grad()
        logits = model(tokens, layout.positions(index))
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")
        (loss / (3 * 22)).backward()
        for parameter in model.parameters() if group else ():
            all_reduce(parameter.grad, group)
        first = first or [p.grad.clone() for p in model.parameters()]
        optimizer.step()
    return first, [p.detach() for p in model.parameters()]


@pytest.mark.parametrize(
    ("world", "kind", "way"),
    [(4, "zigzag", ring_attention), (3, "contiguous", ring_attention),
     (2, "zigzag", ulysses_attention)],
)  # fmt: skip
def test_the_whole_model_trains_as_one_process_does(
    ranks: Any, world: int, kind: str, way: Any
) -> None:
    expected = train(None, kind, way)
    for result in ranks(train, world, kind, way):
        close(result, expected)


def test_positions_are_needed(ranks: Any) -> None:
    """Without them, every shard would believe that it begins the sequence."""
    model = Transformer(CONFIG).double()
    tokens = torch.arange(22)[None]
    shifted = model(tokens, torch.arange(22) + 1000)
    close(model(tokens, torch.arange(22)), model(tokens))
    torch.testing.assert_close(shifted, model(tokens), rtol=1e-9, atol=1e-9)
    layout = SequenceLayout.zigzag(22, 2)
    order = layout.positions(0)
    assert not torch.allclose(model(tokens[:, order], order), model(tokens[:, order]))


# --- refusals ------------------------------------------------------------------------------------
def test_what_does_not_fit_is_refused(ranks: Any) -> None:
    def run(group: Any) -> list[str]:
        layout = SequenceLayout.zigzag(16, group.size)
        q, k, v, _ = (shard_sequence(t, 2, layout, group.index) for t in inputs(16, 3, 3))
        other = SequenceLayout.zigzag(16, 4)
        longer = SequenceLayout.zigzag(20, group.size)
        bad = [
            lambda: ring_attention(q, k[:, :2], v[:, :2], layout, group),
            lambda: ring_attention(q, k, v[:, :1], layout, group),
            lambda: ring_attention(q, k, v, other, group),
            lambda: ring_attention(q, k, v, longer, group),
            lambda: ring_attention(q, k, v.float(), layout, group),
            lambda: ulysses_attention(q, k, v, layout, group),
            lambda: ulysses_attention(q[:, :2], k[:, :2], v[:, :2], other, group),
            lambda: ulysses_attention(q[:, :2], k[:, :2], v[:, :2, :, 1:], layout, group),
            lambda: ring_attention(q, k[:, :0], v[:, :0], layout, group),
            lambda: ulysses_attention(q[:, :2], k[:, :0], v[:, :0], layout, group),
            lambda: ulysses_attention(q[:, :2], k[:, :2, 1:], v[:, :2, 1:], layout, group),
            lambda: ulysses_attention(q[:1, :2], k[:, :2], v[:, :2], layout, group),
            lambda: ulysses_attention(q[0], k[0], v[0], layout, group),
            lambda: ulysses_attention(q[:, :2], k[:, :2].float(), v[:, :2], layout, group),
        ]
        texts = []
        for call in bad:
            with pytest.raises(CommError) as error:
                call()
            texts.append(str(error.value))
        return texts

    words = ["2 key-value heads do not divide 3", "k and v are [B, K, t, C]", "layout for 4",
             "has 10 tokens", "one dtype", "2 must divide both", "layout for 4 ranks",
             "heads of the same width", "0 key-value heads", "0 key-value heads",
             "has 8 tokens", "[B, K, t, C]", "[B, K, t, C]", "one dtype"]  # fmt: skip
    for texts in ranks(run, 2):
        for text, word in zip(texts, words, strict=True):
            assert word in text and len(text.splitlines()) == 3
