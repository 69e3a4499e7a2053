"""The tensor-parallel stepper: strips are the shares of the ranks, numbers those of the formula."""

from __future__ import annotations

import re

import pytest

from course_lib.plot import rank_color, tensor_split_steps
from course_lib.plot.tensor.split_sums import Split, format_flop
from course_lib.plot.tensor.tensor_split import STEPS
from course_lib.trace import chunk_sizes

A, Z, B, OUT = 3, 4, 5, 6  # parts of a frame: heading, signs, X, A, Z, B, O, rows


def strips(part: str, side: str) -> dict[str, float]:
    """Colour to the width or height of its strip."""
    return {color: float(size) + 0.8 for size, color in re.findall(
        rf'{side}="([\d.]+)"[^>]*? fill="(#\w+)"', part)}  # fmt: skip


def cells(row: str) -> list[str]:
    """The words of a row of the table."""
    return re.findall(r">([^<]+)</text>", row)


@pytest.mark.parametrize(("ffn", "ranks"), [(4096, 4), (10, 3), (7, 7), (5, 1)])
def test_a_is_cut_by_columns_and_b_by_the_same_rows(ffn, ranks):
    frame = tensor_split_steps(6, 8, ffn, ranks).frames[3]
    shares = dict(zip(map(rank_color, range(ranks)), chunk_sizes(ffn, ranks), strict=True))
    for part, side in ((A, "width"), (Z, "width"), (B, "height")):
        found = strips(frame.parts[part], side)
        whole = sum(found.values())
        assert found.keys() == shares.keys()
        for color, size in found.items():
            assert size / whole == pytest.approx(shares[color] / ffn, abs=0.01)


def test_partial_sums_are_whole_matrices_one_a_rank_and_then_one():
    frames = tensor_split_steps(2048, 1024, 4096, 4).frames
    parts, summed = frames[4].parts[OUT], frames[5].parts[OUT]
    assert [parts.count(rank_color(rank)) for rank in range(4)] == [1] * 4
    sizes = set(re.findall(r'width="([\d.]+)" height="([\d.]+)" rx="2" fill', parts))
    assert len(sizes) == 1
    assert "fill=" not in summed and "O = sum" in summed


def test_rows_say_what_a_rank_keeps_computes_and_sends():
    frames = tensor_split_steps(2048, 1024, 4096, 4, item=4).frames
    rows = [cells(row) for row in frames[-1].parts[-4:]]
    # 2·H·F/N and T·F/N numbers of 4 bytes; six products of 2·T·H·F/N; two sums of 2(N-1)/N·T·H.
    assert rows == [[f"rank {r}", "8 MiB", "8 MiB", "25.8 GFLOP", "24 MiB"] for r in range(4)]
    assert cells(frames[-1].parts[-5]) == ["one device", "32 MiB", "32 MiB", "103 GFLOP", "0 B"]
    assert cells(frames[5].parts[-1])[-1] == "12 MiB"  # forward: g alone
    assert cells(frames[4].parts[-1])[-1] == "0 B"
    assert frames[0].parts[-4:] == ("",) * 4


def test_the_sums_of_the_ranks_are_those_of_one_device():
    split = Split(token_count=6, hidden=8, ffn=10, ranks=3, item=4)
    assert split.columns == [4, 3, 3]
    assert sum(map(split.weights, split.columns)) == split.weights(10) == 2 * 8 * 10 * 4
    assert sum(map(split.product, split.columns)) == split.product(10) == 2 * 6 * 8 * 10
    # An all-reduce puts 2(N-1) tensors on the wire, however the chunks are.
    assert sum(map(split.sent, range(3))) == 2 * 2 * split.payload
    assert Split(6, 8, 10, 1, 4).sent(0) == 0


def test_products_and_sums_only_grow_and_sums_are_one_each_way():
    assert [step.products for step in STEPS] == [0, 0, 1, 1, 2, 2, 4, 6, 6]
    assert [step.sums for step in STEPS] == [0, 0, 0, 0, 0, 1, 1, 1, 2]
    assert [step.back for step in STEPS] == [False] * 6 + [True] * 3


def test_captions_and_the_description_explain_why():
    player = tensor_split_steps(6, 8, 10, 3)
    assert "each rank sends 2(N-1)/N of it, 256 B" in player.frames[5].caption
    assert "4 to 3 columns of A" in player.frames[1].caption
    assert "GeLU of a sum is not the sum of GeLUs" in player.frames[3].caption
    assert "X of 6×8, A of 8×10 and B of 10×8" in player.alt
    assert all(frame.caption in player.alt for frame in player.frames)


@pytest.mark.parametrize("shape", [(8, 64, 65536, 8), (100_000, 8, 8, 8), (4096, 8192, 28672, 8)])
def test_extreme_shapes_stay_inside_the_picture(shape):
    player = tensor_split_steps(*shape)
    width, height = player.size
    assert width == 800
    for index, (x, y) in enumerate(player.places[2:7]):
        wide, tall = (float(v) for v in re.findall(
            r'<rect x="0" y="0" width="([\d.]+)" height="([\d.]+)"',
            player.frames[0].parts[2 + index])[0])  # fmt: skip
        assert x >= 0 and x + wide <= width and y >= 40 and y + tall <= height


def test_the_player_is_small_and_the_same_each_time():
    html = tensor_split_steps(4096, 8192, 28672, 8, 2)._repr_html_()
    assert html == tensor_split_steps(4096, 8192, 28672, 8, 2)._repr_html_()
    assert len(html) < 150_000


def test_impossible_sizes_are_refused():
    with pytest.raises(ValueError, match="found: 2 ranks without one"):
        tensor_split_steps(4, 4, 2, 4)
    with pytest.raises(ValueError, match="found: room for 8"):
        tensor_split_steps(4, 4, 16, 9)
    with pytest.raises(ValueError, match="a size below 1"):
        tensor_split_steps(0, 4, 16, 2)


def test_flop_are_written_in_powers_of_ten():
    assert [format_flop(n) for n in (12, 1730, 34.4e9)] == ["12 FLOP", "1.73 kFLOP", "34.4 GFLOP"]
