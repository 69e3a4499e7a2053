"""The histogram of gradients: its shares are those that the library's rounding finds."""

from __future__ import annotations

import math
import re
from collections import Counter

import pytest
import torch

from course_lib.plot import gradient_histogram, magnitudes
from course_lib.plot.precision.fates import FATES, LARGE, LOST, NORMAL, SUBNORMAL, painted
from course_lib.plot.precision.magnitudes import sort_out
from course_lib.plot.precision.number_range import read_formats
from course_lib.plot.precision.number_words import THIN, tenths
from course_lib.precision import BF16, E4M3FN, E5M2, FP16, round_to, values

FORMATS = {"FP16": FP16, "E5M2": E5M2, "E4M3FN": E4M3FN, "BF16": BF16}
NUMBERS = {name: values(format) for name, format in FORMATS.items()}
FEW = {2.0**-26: 10, 2.0**-20: 60, 2.0**-9: 25, 2.0**-4: 5, 0.0: 7}  # 100 that are not zero


def normal_numbers(count: int = 20_000) -> torch.Tensor:
    """Numbers of some forty powers of two, with zeros between them."""
    generator = torch.Generator().manual_seed(5)
    sizes = 2.0 ** (6 * torch.randn(count, generator=generator) - 12)
    return torch.cat([torch.randn(count, generator=generator) * sizes, torch.zeros(123)])


def shares(part: str) -> list[str]:
    """The numbers of a table, from LARGE to LOST."""
    return [text.replace(THIN, " ") for text in re.findall(r">([^<]+)</text>", part)]


def heights(part: str, color: str) -> list[float]:
    """Heights of the bars of a colour."""
    path = re.search(rf'<path d="([^"]+)" fill="{color}"', part)
    return [float(v) for v in re.findall(r"h[\d.]+v([\d.]+)h", path[1])] if path else []


# --- counts ------------------------------------------------------------------------------------
def test_magnitudes_count_every_number_once():
    x = normal_numbers()
    counts = magnitudes(x)
    assert sum(counts.values()) == len(x) and counts[0.0] == int((x == 0).sum()) >= 123
    below = sum(count for edge, count in counts.items() if 0 < edge < 2.0**-12)
    assert below == int(((x != 0) & (x.abs() < 2.0**-12)).sum())
    assert all(edge == 0 or (16 * math.frexp(edge)[0] * 2) % 1 == 0 for edge in counts)


def test_counts_of_parts_add_up():
    x = normal_numbers()
    parts = [magnitudes(part) for part in x.split(7000)]
    assert sum(parts, Counter()) == magnitudes(x) == magnitudes(x.split(9999))
    assert magnitudes(x.half().float()) == magnitudes(x.half())
    assert magnitudes([]) == magnitudes(torch.zeros(0)) == {}


def test_what_is_not_finite_is_counted_apart():
    counts = magnitudes(torch.tensor([math.inf, -math.inf, math.nan, 1.0, -1.03]))
    assert counts == {math.inf: 3, 1.0: 2}


@pytest.mark.parametrize("wrong", [[None], [torch.ones(2, dtype=torch.int64)], [1.0]])
def test_only_floats_can_be_counted(wrong):
    with pytest.raises(ValueError, match="a gradient is a tensor of floats"):
        magnitudes(wrong)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("scale", [1.0, 2.0**9, 2.0**24])
def test_fates_are_those_of_the_librarys_rounding(name, scale):
    x, format = normal_numbers(), FORMATS[name]
    x = x[x != 0]
    each = read_formats({name: NUMBERS[name]})[0]
    found = {fate: powers.total() for fate, powers in sort_out(magnitudes(x), scale, each).items()}
    size = (x.double() * scale).abs().float()
    rounded = round_to(format, size, saturate=False)  # NaN, or infinity: too large
    small = size < format.smallest_normal
    assert found == {
        LOST: int((rounded == 0).sum()),
        SUBNORMAL: int((small & (rounded > 0)).sum()),
        NORMAL: int((~small & rounded.isfinite()).sum()),
        LARGE: int((~rounded.isfinite()).sum()),
    }


# --- what is drawn -----------------------------------------------------------------------------
def test_tables_and_captions_say_the_shares():
    formats = {name: NUMBERS[name] for name in ("FP16", "E4M3FN")}
    frames = gradient_histogram(FEW, formats, [1, 2.0**16, 2.0**20]).frames
    assert shares(frames[0].parts[1]) == ["0 %", "30 %", "60 %", "10 %"]
    assert shares(frames[0].parts[2]) == ["0 %", "5 %", "25 %", "70 %"]
    assert shares(frames[1].parts[1]) == ["0 %", "100 %", "0 %", "0 %"]
    assert shares(frames[2].parts[2]) == ["30 %", "70 %", "0 %", "0 %"]
    first, _, last = (frame.caption.replace(THIN, " ") for frame in frames)
    assert first == (
        "Loss scale 2⁰ = 1. FP16: 10 % become 0, 60 % subnormal, 30 % normal, none overflow. "
        "E4M3FN: 70 % become 0, 25 % subnormal, 5 % normal, none saturate."
    )
    assert "FP16: 95 % normal, 5 % overflow (5 of them)" in last


def test_shares_of_tensors_are_exact():
    x = normal_numbers()
    nonzero = x[x != 0]
    player = gradient_histogram(x, {"E4M3FN": NUMBERS["E4M3FN"]}, [2.0**8])
    lost = int((round_to(E4M3FN, nonzero * 256) == 0).sum())
    assert shares(player.frames[0].parts[1])[-1] == tenths(lost, len(nonzero)).replace(THIN, " ")


def test_bars_are_as_high_as_their_counts_and_move_by_the_scale():
    player = gradient_histogram(FEW, {"BF16": NUMBERS["BF16"]}, [1, 4, 2.0**6])
    tall = [heights(frame.parts[1], "#0072B2") for frame in player.frames]
    assert tall[0] == tall[1] == tall[2]
    expected = [100 * count / 60 for count in (10, 60, 25, 5)]
    assert tall[0] == [round(height) for height in expected]
    first = [float(re.search(r'd="M([\d.]+)', frame.parts[1])[1]) for frame in player.frames]
    assert first[2] - first[0] == pytest.approx(3 * (first[1] - first[0]), abs=0.3)


def test_a_power_of_two_that_the_largest_number_cuts_is_a_bar_of_two_parts():
    counts = {256.0: 30, 448.0: 20, 464.0: 50}  # 464 and more are beyond E4M3FN's 448
    part = gradient_histogram(counts, {"E4M3FN": NUMBERS["E4M3FN"]}, [1]).frames[0].parts[1]
    assert heights(part, "#0072B2") == heights(part, "#D55E00") == [50.0]
    assert shares(part) == ["50 %", "50 %", "0 %", "0 %"]


def test_a_few_gradients_among_millions_are_still_seen():
    counts = {2.0**-10: 10_000_000, 2.0: 1}
    frame = gradient_histogram(counts, {"FP16": NUMBERS["FP16"]}, [2.0**15]).frames[0]
    assert heights(frame.parts[1], "#D55E00") == [2.0]
    assert shares(frame.parts[1])[:2] == ["under 0.1 %", "over 99.9 %"]
    assert "(1 of them)" in frame.caption


def test_fates_differ_without_their_colours():
    looks = {re.sub(r"#\w{6}", "", painted(name, [(0, 0, 9, 20)])) for name in FATES}
    assert len(looks) == 4


def test_gradients_that_are_infinite_already_are_too_large_and_said():
    counts = {**FEW, math.inf: 25}
    player = gradient_histogram(counts, {"BF16": NUMBERS["BF16"]}, [1])
    assert shares(player.frames[0].parts[1])[0] == "20 %"
    assert "25 are infinite or NaN without any scale" in player.alt
    assert "25 are infinite or NaN" in player.background


def test_the_description_tells_sizes_zeros_and_all_frames():
    player = gradient_histogram(FEW, {"FP16": NUMBERS["FP16"]})
    assert player.alt.startswith(
        "Histogram of the magnitudes of 107 gradients in powers of two, from 2⁻²⁶ to 2⁻³, most of "
        "them from 2⁻²⁰ to 2⁻¹⁹; 6.5 % are exactly 0 and left out.".replace(" %", f"{THIN}%")
    )
    assert all(frame.caption in player.alt for frame in player.frames)
    without = {edge: count for edge, count in FEW.items() if edge}
    assert "none is exactly 0" in gradient_histogram(without, {"FP16": NUMBERS["FP16"]}).alt


def test_the_smallest_gradients_do_not_press_the_others_together():
    """One gradient of 1e-38 among thousands is in the first bar, as are infinities in the last."""
    few = gradient_histogram(FEW, {"FP16": NUMBERS["FP16"]}, [1])
    many = {edge: 1000 * count for edge, count in FEW.items()}
    tail = gradient_histogram({**many, 1e-38: 1, math.inf: 1}, {"FP16": NUMBERS["FP16"]}, [1])
    bar = re.compile(r'd="M[\d.]+ -?[\d.]+h([\d.]+)v')
    assert len({bar.search(p.frames[0].parts[1])[1] for p in (few, tail)}) == 1  # width
    assert shares(tail.frames[0].parts[1])[-1] == "10 %"
    told = "the first bar has all smaller ones, too"
    assert told in tail.background and told in tail.alt and told not in few.background


def test_what_rounding_leaves_changes_no_word_and_no_bar():
    """Sums that should be zero are zeros here and dust there: another processor, another dust."""
    many = {edge: 1000 * count for edge, count in FEW.items()}
    here = {**many, 0.0: 7000 - 20, 2.0**-60: 5, 2.0**-48: 15, 2.0**-26: 10_003, 2.0**-20: 59_997}
    there = {**many, 0.0: 7000 - 21, 2.0**-58: 1, 2.0**-55: 9, 2.0**-47: 11}
    formats = {name: NUMBERS[name] for name in ("FP16", "E4M3FN")}
    pages = [gradient_histogram(c, formats, [1, 2.0**8, 2.0**24]) for c in (here, there)]
    assert pages[0].alt == pages[1].alt and "from 2⁻²⁶ to" in pages[0].alt
    assert pages[0]._repr_html_() == pages[1]._repr_html_()


def test_the_player_is_small_and_the_same_each_time():
    x, scales = normal_numbers(), [2.0**k for k in range(0, 25, 3)]
    html = gradient_histogram(x, NUMBERS, scales)._repr_html_()
    assert len(html) < 150_000
    assert html == gradient_histogram(magnitudes(x), NUMBERS, scales)._repr_html_()


def test_which_formats_saturate_can_be_said():
    player = gradient_histogram({1e6: 1}, {"E5M2": NUMBERS["E5M2"]}, [1], saturate=["E5M2"])
    assert "saturate (1 of them)" in player.frames[0].caption


# --- bad input ---------------------------------------------------------------------------------
@pytest.mark.parametrize("scales", [[], [0.0], [-2.0], [3.0], [1.0, math.inf], [math.nan]])
def test_scales_are_powers_of_two(scales):
    with pytest.raises(ValueError, match="a power of two changes no digit"):
        gradient_histogram(FEW, {"FP16": NUMBERS["FP16"]}, scales)


@pytest.mark.parametrize("counts", [{}, {0.0: 5}, {1.0: 0}, {math.inf: 3}, {-1.0: 2, 1.0: 2},
                                    {1.0: -1, 2.0: 3}, {math.nan: 1, 1.0: 1}])  # fmt: skip
def test_there_is_something_to_count(counts):
    with pytest.raises(ValueError, match="some must be finite and not zero"):
        gradient_histogram(counts, {"FP16": NUMBERS["FP16"]})
    with pytest.raises(ValueError, match="some must be finite and not zero"):
        gradient_histogram(torch.zeros(3), {"FP16": NUMBERS["FP16"]})
