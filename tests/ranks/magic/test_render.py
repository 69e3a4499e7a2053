"""What several ranks print, folded into one text."""

from __future__ import annotations

import io

import pytest
from tqdm import tqdm

from course_lib.ranks.magic.render import END, FLOOD, fold, label_of, lines_of, text_of


def text(*outputs: str, **more: int) -> str:
    return text_of({rank: printed.encode() for rank, printed in enumerate(outputs)}, **more)


def test_what_all_print_alike_stands_once() -> None:
    assert text("a\nb\n", "a\nb\n", "a\nb\n") == "ranks 0–2 │ a\nranks 0–2 │ b"


def test_what_all_print_differently_stands_in_rank_order() -> None:
    assert text("a\n", "b\n", "c\n") == "rank 0 │ a\nrank 1 │ b\nrank 2 │ c"


def test_equal_lines_between_different_ones() -> None:
    got = text("start\nloss 1\nend\n", "start\nloss 2\nend\n", "start\nloss 1\nend\n")
    assert got.splitlines() == [
        "ranks 0–2 │ start",
        "ranks 0,2 │ loss 1",
        "rank 1    │ loss 2",
        "ranks 0–2 │ end",
    ]


def test_common_beginning_and_end_of_different_lengths() -> None:
    got = text("head\nonly 0\nmore 0\ntail\n", "head\ntail\n", "head\nonly 2\ntail\n")
    assert got.splitlines() == [
        "ranks 0–2 │ head",
        "rank 0    │ only 0",
        "rank 0    │ more 0",
        "rank 2    │ only 2",
        "ranks 0–2 │ tail",
    ]


def test_one_text_is_the_beginning_of_another() -> None:
    got = text("x\nx\n", "x\nx\nx\n")
    assert got.splitlines() == ["ranks 0–1 │ x", "ranks 0–1 │ x", "rank 1    │ x"]


def test_nothing_is_lost_or_doubled_by_folding() -> None:
    outputs = {
        0: b"a\nb\nc\n",
        1: b"a\nc\n",
        2: b"b\na\nc\nc\n",
        3: b"a\n\nc\n",
    }
    for rank, data in outputs.items():
        mine = [line for ranks, lines in fold(outputs) if rank in ranks for line in lines]
        assert mine == lines_of(data)


def test_silent_ranks() -> None:
    assert text("", "", "") == ""
    assert text("", "a\n", "a\n") == "ranks 1–2 │ a"
    assert text("", "a\n", "") == "rank 1 │ a"
    assert text("a\nb\n", "a\n", "") == "rank 0 │ a\nrank 0 │ b\nrank 1 │ a"


def test_no_newline_at_the_end_and_empty_lines() -> None:
    assert text("a", "a\n") == "ranks 0–1 │ a"
    assert text("\na\n", "\na\n") == "ranks 0–1 │\nranks 0–1 │ a"


@pytest.mark.parametrize(
    ("printed", "lines"),
    [
        ("  0%|  \r 50%|# \r100%|##\n", ["100%|##"]),
        ("  0%|  \r100%|##\r", ["100%|##"]),
        ("windows\r\nline\r\n", ["windows", "line"]),
        ("\x1b[2K\r10 %\x1b[2K\r20 %\x1b[?25h\n", ["20 %"]),
        ("\x1b[1Aup\x1b[3;4H\n", ["up"]),
        ("first\nsecond\x1b[A\rFIRST\x1b[B\rSECOND\n", ["FIRST", "SECOND"]),
        ("\x1b[3Bdown", ["", "", "", "down"]),
        ("\x1b[31mred\x1b[0m\n", ["\x1b[31mred\x1b[0m"]),
        ("a\x80b\n", ["a\x80b"]),
    ],
)
def test_a_line_is_what_a_terminal_would_show_at_the_end(printed: str, lines: list[str]) -> None:
    assert lines_of(printed.encode()) == lines


def test_bytes_that_are_no_text() -> None:
    assert lines_of(b"\xff\xfe\n") == ["\ufffd\ufffd"]


def test_progress_bars_of_ranks_fold_when_they_end_alike() -> None:
    assert text("\r 10%\r100%\n", "\r 50%\r100%\n") == "ranks 0–1 │ 100%"


def test_nested_progress_bars_stand_once_each() -> None:
    stream = io.StringIO()
    for _ in tqdm(range(3), "outer", file=stream, ncols=40, mininterval=0):
        for _ in tqdm(range(20), "inner", file=stream, ncols=40, mininterval=0, leave=False):
            pass
    print("done", file=stream)
    lines = [line for line in lines_of(stream.getvalue().encode()) if line.strip()]
    assert len(lines) == 2
    assert lines[0].startswith("outer: 100%")
    assert lines[1] == "done"


def test_labels() -> None:
    assert label_of([3]) == "rank 3"
    assert label_of([0, 1, 2, 3]) == "ranks 0–3"
    assert label_of([0, 2, 3]) == "ranks 0,2,3"


def test_long_output_loses_its_middle_and_says_how_much() -> None:
    printed = "".join(f"{n}\n" for n in range(1000))
    lines = text(printed, printed).splitlines()
    assert lines[:200] == [f"ranks 0–1 │ {n}" for n in range(200)]
    assert lines[200] == "… 750 more lines; output(rank) has all of them …"
    assert lines[201:] == [f"ranks 0–1 │ {n}" for n in range(950, 1000)]


def test_output_that_just_fits_is_whole() -> None:
    printed = "".join(f"{n}\n" for n in range(250))
    assert text(printed).count("\n") == 249
    assert "more lines" not in text(printed)
    assert "… 1 more lines" in text(printed + "x\n")


def test_only_the_end_of_growing_output() -> None:
    printed = "".join(f"{n}\n" for n in range(100))
    lines = text(printed, head=0, tail=3).splitlines()
    assert lines[0] == "… 97 more lines; output(rank) has all of them …"
    assert lines[1:] == ["rank 0 │ 97", "rank 0 │ 98", "rank 0 │ 99"]


def test_a_flood_is_shown_from_both_ends_and_counted() -> None:
    count = FLOOD // 4
    printed = "".join(f"{n:07}\n" for n in range(count))
    assert len(printed) > FLOOD
    lines = text(printed, printed, printed).splitlines()
    assert lines[0] == "ranks 0–2 │ 0000000"
    assert lines[199] == "ranks 0–2 │ 0000199"
    assert lines[-1] == f"ranks 0–2 │ {count - 1:07}"
    told = int(lines[200].split()[2].replace(",", ""))
    assert lines[200].startswith("… over ")
    assert told == count - 250


def test_a_flood_of_few_lines_says_what_is_left_out() -> None:
    printed = ("x" * 1000 + "\n") * (FLOOD // 1000) + "y" * (END + 1) + "\n" + "z" * END
    lines = text(printed + "\n").splitlines()
    assert any("more lines …" in line for line in lines)
    assert sum(map(len, lines)) < 3 * END


def test_a_flood_without_any_line_end() -> None:
    lines = text("x" * (2 * FLOOD)).splitlines()
    assert [line[:10] for line in lines] == ["rank 0 │ x", "rank 0 │ …", "rank 0 │ x"]


@pytest.mark.parametrize("far", [b"3000000000", b"9" * 5000])
def test_a_cursor_that_goes_nowhere(far: bytes) -> None:
    """A program may print anything, such as a file: it costs no memory, and no error."""
    assert lines_of(b"a\x1b[" + far + b"Bb\n") == ["ab"]
