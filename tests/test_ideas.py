"""Each lesson's idea in code: it runs, and it breaks as the lesson says.

The cells are the notebook's own. `idea` is the tag of the algorithm, `idea-proof` of the cell that
compares it with one process; before a proof all cells of the ranks above it are run.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from course_lib.ranks.pool.pool import Pool

NOTEBOOKS = Path(__file__).resolve().parents[1] / "notebooks"
RIGHT = r"within (\d(\.\d+)?e-1[0-9]|0e\+00)"
MOST_LINES = 30  # of the idea's cells together
LONGEST_CELL = 25
FINISHED = ("01", "02", "03", "04", "05", "06", "07", "10", "11", "12")  # as the design asks


class Break(NamedTuple):
    """A change that the lesson suggests.

    Attributes:
        lesson: its number.
        proof: which of the lesson's proofs shows it, from 0.
        old: the lines' text that is changed, in the idea's cells above that proof.
        new: what the reader writes instead.
        shows: what the proof prints then.
    """

    lesson: str
    proof: int
    old: str
    new: str
    shows: str


BREAKS = (
    Break("01", 0, "add_(incoming)", "copy_(incoming)", r"within \de[+-]0[01]\s+sent 12,288"),
    Break("01", 0, "range(n - 1):                             # all-gather", "range(n - 2):",
          r"within \de[+-]0[01]\s+sent 10,240"),
    Break("02", 0, '"avg"', '"sum"', r"within 3e\+00"),
    Break("02", 0, "    comm.all_reduce", "    if parameter.dim() == 2: comm.all_reduce",
          r"within \de-0[12]"),
    Break("02", 1, "work.wait()", "pass", r"within [1-9]e[+-]0[0-3]"),
    Break("02", 1, "works.append(comm", "(comm", r"within \de[+-]0\d, 0 all-reduces"),
    Break("02", 2, "> 1500", "> 10_000", r"within \de-1\d\s+buckets left after \[8\]"),
    Break("02", 2, "parameter.grad.copy_(part.view_as(parameter))", "pass",
          r"within [1-9]e[+-]0[0-3]"),
    Break("03", 0, " / k", "", r"within 3e\+00"),
    Break("03", 0, "if number == k:", "if True:", r"within \de-1\d, 16 all-reduces"),
    Break("03", 1, "sends = number == k", "sends = True", r"within \de[+-]\d\d, 16 all-reduces"),
    Break("03", 1, "number == k", "number == 1", r"within \de-0[12], 4 all-reduces"),
    Break("03", 2, "comm.all_reduce(counted, group)", "pass", r"within \de[+-]0[01], n"),
    Break("03", 2, " * world_size", "", r"within [78]e-01"),
    Break("04", 0, "        comm.all_gather(weight.data, shard.data, group)", "        pass",
          r"within 1e-01"),
    Break("04", 0, '"avg"', '"sum"', r"within \de-0[45]"),
    Break("04", 1, "checkpoint(sharded_block, x, up, down, use_reentrant=False)",
          "sharded_block(x, up, down)",
          r"within \de-1\d\s+held after the forward: [89]\d,\d+ bytes\s+8 all_gather, 8 reduce"),
    Break("04", 1, '"avg"', '"sum"', r"within 3e\+00"),
    Break("06", 0, "comm.all_reduce(d_x, group)", "pass",
          r"result \de[-+]\d\d, dX [1-9]e[-+]0\d, dA \de-1\d, dB"),
    Break("06", 0, "    d_b = z.T", "    comm.all_reduce(d_out, group); d_b = z.T",
          r"result (\de-1\d|0e\+00), dX 3e\+00, dA 3e\+00, dB 3e\+00"),
    Break("06", 1, "comm.all_reduce(shared.grad, sharers)", "pass",
          r"gradients within [1-9]e[-+]0\d, the result \de-1\d"),
    Break("06", 1, "rank * K // world_size", "rank % K", r"the result [1-9]e[-+]0\d"),
    Break("06", 2, 'comm.all_reduce(most, group, "max")', "pass", r"within [1-9]e[-+]0\d"),
    Break("06", 2, "torch.where(mine, part.gather(1, index[:, None])[:, 0], 0.0)",
          "part.gather(1, index[:, None])[:, 0]", r"within [1-9]e[-+]0\d"),
    Break("06", 3, "work.wait()", "pass", r"within [1-9]e[-+]0\d"),
    Break("06", 3, "(z, b, 4)", "(z, b, 1)", r"within \de-1\d; 1 all_reduce"),
    Break("07", 0, "comm.all_reduce(g.grad, group)", "pass",
          r"gradients within [1-9]e[-+]0\d, the result \de-1\d"),
    Break("07", 0, "reduce_scatter_in_group(part, 0, group)", "part.chunk(world_size)[rank]",
          r"the result [1-9]e[-+]0\d"),
    Break("07", 1, "summed * shrink", "summed", r"within [1-9]e[-+]0\d"),
    Break("07", 1, "range(world_size)", "range(world_size - 1)", r"within [1-9]e[-+]0\d"),
    Break("07", 2, "comm.all_to_all(coming, parts, group)", "coming.copy_(parts)",
          r"within [1-9]e[-+]0\d"),
    Break("07", 2, "coming.unbind()", "coming.flip(0).unbind()", r"within [1-9]e[-+]0\d"),
    Break("05", 0, "pool.copy_up(master, quarter).wait()", "pass", r"within \de-0[12]"),
    Break("05", 0, "master.grad).wait()", "master.grad)", r"within \de-0[1-3]"),
    Break("05", 1, "copies[i].wait()\n    if", "pass\n    if", r"within nan"),
    Break("05", 1, "buffers[(i + 1) % 2]", "buffers[i % 2]", r"within nan"),
    Break("10", 0, "torch.set_rng_state(ctx.random)", "pass", r"within \de[+-]0[012]"),
    Break("10", 0, "torch.set_rng_state(now)", "pass", r"within 0e\+00\s+held.*\s+the.*False"),
    Break("10", 1, "torch.set_rng_state(random)", "pass", r"within \de[+-]0[012]"),
    Break("10", 1, "torch.set_rng_state(now)", "pass", r"within 0e\+00\s+held.*\s+the.*False"),
    Break("11", 0, "name == saved and ", "", r"within \de[+-]0[01]"),
    Break("11", 0, "data.seek(at + (low - first) * numbers.itemsize)", "data.seek(at)",
          r"within \de[+-]0[01]"),
    Break("12", 0, "results[order] = back", "results = back", r"within \de[+-]0[01]"),
    Break("12", 0, " * weights[..., None]", "", r"within \de[+-]0[01]"),
)  # fmt: skip


def notebook(lesson: str) -> Path:
    return next(NOTEBOOKS.glob(f"{lesson}_*.ipynb"))


def code(lesson: str) -> list[dict[str, Any]]:
    cells = json.loads(notebook(lesson).read_text())["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def tagged(cell: dict[str, Any], tag: str) -> bool:
    return tag in cell["metadata"].get("tags", [])


def parts(lesson: str) -> list[list[dict[str, Any]]]:
    """The cells of the ranks before each proof, and the proof itself."""
    found: list[list[dict[str, Any]]] = []
    for cell in code(lesson):
        if source(cell).startswith("%%ranks"):
            if not found or tagged(found[-1][-1], "idea-proof"):
                found.append([])
            found[-1].append(cell)
    return [part for part in found if tagged(part[-1], "idea-proof")]


def printed(lesson: str, proof: int, old: str = "", new: str = "") -> str:
    """What rank 0 prints in a proof, after a change of the idea above it."""
    sections = parts(lesson)[: proof + 1]
    changes = 0
    with Pool(4) as pool:
        for number, section in enumerate(sections):
            for cell in section:
                text = source(cell).partition("\n")[2]
                if old and number == proof and tagged(cell, "idea"):
                    changes += text.count(old)
                    text = text.replace(old, new)
                outcome = pool.run_cell(text)
                assert not outcome.verdict, outcome
    assert changes == (1 if old else 0), f"{old!r} stands {changes} times in the idea"
    return bytes(outcome.output[0]).decode()


@pytest.mark.parametrize("lesson", FINISHED)
def test_the_idea_is_short_and_right(lesson: str) -> None:
    assert parts(lesson)
    for proof, section in enumerate(parts(lesson)):
        idea = [source(cell) for cell in section if tagged(cell, "idea")]
        lines = [line for text in idea for line in text.splitlines()[1:] if line.strip()]
        assert 0 < len(lines) <= MOST_LINES
        assert re.search(RIGHT, printed(lesson, proof))


@pytest.mark.parametrize("change", BREAKS, ids=lambda b: f"{b.lesson} {b.proof} {b.new[:20]}")
def test_it_breaks_as_the_lesson_says(change: Break) -> None:
    text = printed(change.lesson, change.proof, change.old, change.new)
    assert re.search(change.shows, text), text


@pytest.mark.parametrize("lesson", FINISHED)
def test_two_changes_are_suggested_for_each_idea(lesson: str) -> None:
    for proof in range(len(parts(lesson))):
        assert sum(b.lesson == lesson and b.proof == proof for b in BREAKS) >= 2


@pytest.mark.parametrize("lesson", FINISHED)
def test_no_cell_is_longer_than_a_reader_takes_in(lesson: str) -> None:
    for cell in code(lesson):
        if not tagged(cell, "first"):
            lines = [line for line in source(cell).splitlines() if line.strip()]
            assert len(lines) <= LONGEST_CELL, source(cell)
