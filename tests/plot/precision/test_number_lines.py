"""Number lines: the picture's own rounding is the library's, and its numbers are the formats'."""

from __future__ import annotations

import math
import re

import pytest
import torch

from course_lib.plot import number_lines
from course_lib.plot.precision.number_range import read_formats
from course_lib.plot.precision.number_words import THIN, percent, plain, power_of_two
from course_lib.precision import BF16, E2M1, E4M3FN, E5M2, E8M0, FP16, round_to, values

FORMATS = {"BF16": BF16, "FP16": FP16, "E5M2": E5M2, "E4M3FN": E4M3FN, "E2M1": E2M1}
NUMBERS = {name: values(format) for name, format in FORMATS.items()}
TINY = {"E2M1": [0.5, 1, 1.5, 2, 3, 4, 6]}


@pytest.fixture(scope="module")
def player():
    return number_lines(NUMBERS)


def words(part: str) -> list[str]:
    """The words of a part, in order."""
    return [text.replace(THIN, " ") for text in re.findall(r">([^<]+)</text>", part)]


@pytest.mark.parametrize("name", FORMATS)
def test_the_picture_rounds_as_the_library_does(name):
    format, each = FORMATS[name], read_formats(NUMBERS)[list(FORMATS).index(name)]
    generator = torch.Generator().manual_seed(9)
    around = 2.0 ** (60 * torch.rand(2000, generator=generator) - 36)
    numbers = torch.tensor(each.numbers[: min(each.count, 4096)])
    ties = (numbers[1:].double() + numbers[:-1].double()) / 2
    edges = torch.tensor([each.limit, each.largest, each.largest + each.gap, 1e30])
    x = torch.cat([around, ties.float(), numbers[1:], edges])
    expected = round_to(format, x, saturate=each.saturates)
    found = [each.land(v).value for v in x.tolist()]
    assert found == expected.tolist()


@pytest.mark.parametrize("name", FORMATS)
def test_ranges_are_told_by_the_numbers_alone(name):
    format, each = FORMATS[name], read_formats(NUMBERS)[list(FORMATS).index(name)]
    assert each.smallest == format.smallest_subnormal
    assert each.normal == format.smallest_normal
    assert each.largest == format.largest
    assert each.saturates is not format.has_infinity
    assert each.count == format.finite_codes - 1
    assert each.subnormals == 2**format.mantissa_bits - 1
    assert each.between(1, 2) == 2**format.mantissa_bits


def test_formats_without_subnormals_and_with_one_bit_of_mantissa():
    bare = read_formats({"E8M0": values(E8M0)})[0]
    assert (bare.normal, bare.subnormals, bare.between(1, 2)) == (2.0**-127, 0, 1)
    small = read_formats(TINY)[0]
    assert (small.smallest, small.normal, small.largest, small.subnormals) == (0.5, 1, 6, 1)
    normal = [v for v in NUMBERS["E5M2"].tolist() if v >= E5M2.smallest_normal]
    flushed = read_formats({"E5M2 without subnormals": normal})[0]
    assert (flushed.normal, flushed.subnormals) == (E5M2.smallest_normal, 0)


# --- what is drawn ---------------------------------------------------------------------------
def test_a_frame_shows_the_neighbours_and_where_x_lands():
    frame = number_lines(NUMBERS, [1.06]).frames[0]
    shown = {name: words(part) for name, part in zip(NUMBERS, frame.parts[1:], strict=True)}
    assert words(frame.parts[0]) == ["x = 1.06"]
    assert shown["E4M3FN"] == ["→ 1: error 5.7 %", "1", "1.125"]
    assert shown["E5M2"] == ["→ 1: error 5.7 %", "1", "1.25"]
    assert shown["BF16"] == ["→ 1.0625: error 0.24 %", "1.0547", "1.0625"]
    assert shown["FP16"][1:] == ["1.0596", "1.0605"]
    for name, format in FORMATS.items():
        rounded = float(round_to(format, torch.tensor(1.06)))
        error = percent(abs(rounded - 1.06) / 1.06).replace(THIN, " ")
        assert shown[name][0] == f"→ {plain(rounded)}: error {error}"


def test_too_large_and_too_small_numbers_are_told_apart():
    frames = number_lines(NUMBERS, [70_000, 1e-6, 500, 450]).frames
    first = [words(part)[0] for frame in frames for part in frame.parts[1:]]
    assert first[1:4] == ["→ ∞: overflows", "→ ∞: overflows", "→ 448: saturates, error 99.4 %"]
    assert first[4] == "→ 6: saturates, error over 99.9 %"  # E2M1 has no infinity
    assert first[7:10] == ["→ 0: becomes 0"] * 3
    assert first[13] == "→ 448: saturates, error 10.4 %"
    assert first[18] == "→ 448: error 0.44 %"  # beyond the largest, and still nearest to it
    assert words(frames[0].parts[2])[-1] == "from 65,520: ∞"  # the tie goes to the even infinity
    assert words(frames[2].parts[4])[-1] == "beyond 464: 448"
    assert "less than half of the smallest number, 0.00195" in frames[1].caption


def test_which_formats_saturate_can_be_said():
    both = number_lines(NUMBERS, [70_000], saturate=["E5M2", "E4M3FN"]).frames[0]
    assert words(both.parts[3])[0] == "→ 57,344: saturates, error 18.1 %"
    none = number_lines(NUMBERS, [70_000], saturate=[]).frames[0]
    assert words(none.parts[4])[0] == "→ ∞: overflows"


def test_a_tie_goes_to_the_even_number_and_is_said():
    frames = number_lines({"E4M3FN": NUMBERS["E4M3FN"]}, [1.0625, 1.1875, 1.125]).frames
    assert [words(f.parts[1])[0] for f in frames] == [
        "→ 1: error 5.9 %, a tie", "→ 1.25: error 5.3 %, a tie", "→ 1.125: exact"]  # fmt: skip
    assert "(a tie: the even one)" in frames[0].caption
    assert words(frames[2].parts[1])[1:] == ["1", "1.25"]  # what lies on both sides


def test_x_and_its_landing_are_on_the_same_axis(player):
    """The landing's dot is as far from x as their logarithms are."""
    across = re.compile(r"M([\d.]+) ")
    ticks = re.findall(r'x="([\d.]+)" y="[\d.]+" font-size="12" class="ink" text-anchor="middle">2',
                       player.background)  # fmt: skip
    step = (float(ticks[1]) - float(ticks[0])) / 8  # of a power of two; marks are 8 apart
    frame = player.frames[9]  # 0.001, which E4M3FN takes for 2^-9
    x = float(across.search(frame.parts[0])[1])
    dots = [float(v) for v in re.findall(r'<circle cx="([\d.]+)"', frame.parts[0])]
    assert dots[3] - x == pytest.approx(step * (-9 - math.log2(0.001)), abs=0.2)


def test_thousands_of_numbers_make_a_small_picture(player):
    html = player._repr_html_()
    assert len(html) < 150_000 and html == number_lines(NUMBERS)._repr_html_()
    longest = max(re.findall(r' d="([^"]*)"', player.background), key=len)
    assert longest.count("M") < 150  # no mark for each of 32,639 numbers


def test_the_description_tells_ranges_and_all_frames(player):
    alt = player.alt.replace(THIN, " ")
    assert "E4M3FN: 126 positive numbers, the smallest 2⁻⁹ (0.00195), normal ones from 2⁻⁶" in alt
    assert "to 65,504; 1,023 are subnormal (3.2 %); 1,024 normal ones in a power of two" in alt
    assert all(frame.caption in player.alt for frame in player.frames)


@pytest.mark.parametrize("samples", [[1.0], [1e-30, 1e30]])
@pytest.mark.parametrize("numbers", [TINY, {"BF16": NUMBERS["BF16"]}, {"E8M0": values(E8M0)}])
def test_odd_formats_stay_inside_the_picture(numbers, samples):
    player = number_lines(numbers, samples)
    drawn = player.background + "".join(part for f in player.frames for part in f.parts)
    places = [float(v) for v in re.findall(r'(?:x|cx)="(-?[\d.]+)"', drawn)]
    assert min(places) >= 0 and max(places) <= player.size[0]


# --- bad input -------------------------------------------------------------------------------
def test_what_cannot_be_drawn_is_refused():
    for formats in ({"f": [1.0, 2.0]}, {"f": [1.0, 2.0, 3.0, 4.0, 5.0]}, {"f": [-1.0, math.nan]}):
        with pytest.raises(ValueError, match="a format has equally spaced numbers"):
            number_lines(formats)
    with pytest.raises(ValueError, match="at least one format"):
        number_lines({})
    with pytest.raises(ValueError, match="only those drawn can saturate"):
        number_lines(TINY, saturate=["E4M3FN"])
    for samples in ([], [0.0], [-1.0], [math.inf], [math.nan]):
        with pytest.raises(ValueError, match="positive finite numbers"):
            number_lines(TINY, samples)


# --- words -------------------------------------------------------------------------------------
def test_numbers_are_short_and_true():
    found = [plain(v) for v in (0, 1, 0.1, 70144, 1234567, 1.06054, 2.0**-24)]
    assert found == ["0", "1", "0.1", "70,144", "1,234,567", "1.0605", "5.9605·10⁻⁸"]
    assert [plain(v) for v in (1e-10, 3.3895e38, math.inf)] == ["10⁻¹⁰", "3.3895·10³⁸", "∞"]
    assert [plain(v, 2) for v in (0.0999, 9.99, 99.9)] == ["0.1", "10", "100"]
    assert power_of_two(-24) == "2⁻²⁴"


def test_a_share_is_never_rounded_to_nothing_or_all():
    found = [percent(v, 1000).replace(THIN, " ") for v in (0, 1, 1000, 999.9, 998, 61, 0.00001)]
    assert found == ["0 %", "0.1 %", "100 %", "over 99.9 %", "99.8 %", "6.1 %", "10⁻⁶ %"]
