"""Calls that ended, and were not the same on their ranks, are named; what may differ is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from course_lib import comm
from course_lib.comm import Group
from course_lib.ranks import ForkServer, Pool, RanksError
from course_lib.trace import Ledger

Ranks = Callable[..., list[Any]]


# --- what is wrong -------------------------------------------------------------------------------
def two_reductions(group: Group) -> None:
    comm.all_reduce(torch.ones(4), group)
    comm.all_reduce(torch.ones(4), group, "max" if group.rank == 1 else "sum")


def two_reductions_from_messages(group: Group) -> None:
    comm.ring_all_reduce(torch.ones(4), group, "avg" if group.rank == 1 else "sum")


def two_dtypes(group: Group) -> None:
    comm.broadcast(torch.ones(4, dtype=torch.int32 if group.rank == 1 else torch.float32), 0, group)


def turned(group: Group) -> None:
    comm.all_reduce(torch.ones((2, 3) if group.rank == 1 else (3, 2)), group)


def message_of_another_dtype(group: Group) -> None:
    if group.rank == 0:
        comm.send(torch.ones(4), 1, group)
    elif group.rank == 1:
        comm.recv(torch.ones(4, dtype=torch.int32), 0, group)


def message_of_another_size(group: Group) -> None:
    if group.rank == 0:
        comm.send(torch.ones(3), 1, group)
    elif group.rank == 1:
        comm.recv(torch.ones(4), 0, group)


def on_a_part(group: Group) -> None:
    part = group.split([[2, 0], [1]], "tp")
    comm.all_reduce(torch.ones(2), part, "product" if group.rank == 2 else "sum")


WRONG = {
    two_reductions: ("ranks 0 and 2 called all_reduce (sum)", "rank 1 called all_reduce (max)"),
    two_reductions_from_messages: ("called ring all_reduce (sum)", "(avg) of float32 [4]"),
    two_dtypes: ("of float32 [4] with root 0", "rank 1 called broadcast of int32 [4]"),
    turned: ("float32 [3, 2]", "rank 1 called all_reduce (sum) of float32 [2, 3]"),
    message_of_another_dtype: ("rank 0 called send of float32 [4]", "rank 1 called recv of int32"),
    message_of_another_size: ("rank 0 called send of float32 [3]", "recv of float32 [4]"),
    on_a_part: ("rank 0 called all_reduce (sum)", "rank 2 called all_reduce (product)"),
}


@pytest.mark.parametrize("program", list(WRONG))
def test_what_was_not_the_same_is_named(ranks: Ranks, program: Callable[[Group], None]) -> None:
    with pytest.raises(RanksError) as caught:
        ranks(program, 3)
    text = " ".join(str(caught.value).split())
    assert caught.value.outcome.verdict == "mismatch"
    assert "ended that was not the same on its ranks" in text and text.count(". ") <= 1
    for words in WRONG[program]:
        assert words in text
    first = program.__code__.co_firstlineno
    lines = {f"test_disagreement.py, line {first + offset}" for offset in range(1, 6)}
    assert any(line in text for line in lines), text


def test_a_cell_says_it_and_the_ranks_go_on(server: ForkServer) -> None:
    with Pool(2, server) as pool:
        pids = pool.run_cell("x = torch.ones(2)") and pool.pids
        cell = (
            "\nif rank:\n    comm.all_reduce(x, group, 'max')\nelse:\n    comm.all_reduce(x, group)"
        )
        wrong = pool.run_cell(cell, "Cell In[7]")
        assert wrong.verdict == "mismatch" and not wrong.restarted
        assert "Cell In[7], line 3" in " ".join(wrong.story().split())
        assert "Cell In[7], line 5" in " ".join(wrong.story().split())
        fine = pool.run_cell("comm.all_reduce(x, group)")
        assert (fine.verdict, pool.pids) == ("", pids), "it is said once"


# --- what only looks like it ---------------------------------------------------------------------
def uneven_parts(group: Group) -> None:
    sizes = [[1, 2, 0], [0, 3, 1], [2, 0, 0]]
    given = sizes[group.index]
    taken = [row[group.index] for row in sizes]
    comm.all_to_all(torch.empty(sum(taken), 2), torch.ones(sum(given), 2), group, taken, given)
    outputs, inputs = [torch.empty(n) for n in taken], [torch.ones(n) for n in given]
    comm.pairwise_all_to_all(outputs, inputs, group)


def other_groups_in_another_order(group: Group) -> None:
    first, second = (group.split([[0, 1, 2]], name) for name in ("dp", "ep"))
    order = [(first, 3), (second, 5)]
    works = []
    for part, size in order if group.rank else order[::-1]:
        works.append(comm.all_reduce(torch.ones(size), part, async_op=True))
    for work in works:
        work.wait()


def built_and_the_backends_own(group: Group) -> None:
    if group.rank == 0:
        work = comm.all_reduce(torch.ones(3), group, async_op=True)
    comm.ring_all_reduce(torch.ones(4), group)
    if group.rank:
        work = comm.all_reduce(torch.ones(3), group, async_op=True)
    work.wait()


def flat_and_in_rows(group: Group) -> None:
    comm.all_reduce(torch.ones((2, 3) if group.rank == 1 else 6), group)
    comm.broadcast(torch.ones((1, 4) if group.rank == 1 else (4, 1)), 0, group)
    if group.rank == 0:
        comm.send(torch.ones(2, 3), 1, group)
    elif group.rank == 1:
        comm.recv(torch.empty(24, dtype=torch.uint8), 0, group)


def parts_that_do_other_things(group: Group) -> None:
    part = group.split([[2, 0], [1]], "tp")
    for number in range(1 + part.ranks[0]):
        comm.all_reduce(torch.ones(1 + part.size + number), part, "max" if part.size > 1 else "sum")


def batches_that_are_waited_for_late(group: Group) -> None:
    into = [torch.empty(n) for n in (2, 4, 3)]
    works = [comm.irecv(row, group.previous, group) for row in into]
    works += [comm.isend(torch.ones(n), group.next, group) for n in (2, 4, 3)]
    for work in reversed(works):
        work.wait()


def messages_that_pass_each_other(group: Group) -> None:
    if group.rank == 0:
        works = [comm.isend(torch.ones(2 + tag), 1, group, tag=tag) for tag in (0, 1)]
    elif group.rank == 1:
        works = [comm.irecv(torch.empty(2 + tag), 0, group, tag=tag) for tag in (1, 0)]
    for work in works if group.rank < 2 else []:
        work.wait()


RIGHT = [
    uneven_parts, other_groups_in_another_order, built_and_the_backends_own, flat_and_in_rows,
    parts_that_do_other_things, batches_that_are_waited_for_late, messages_that_pass_each_other,
]  # fmt: skip


def one_after_another(group: Group) -> bool:
    for program in RIGHT:
        program(group)
    return True


def test_programs_that_may_do_so_are_not_accused(ranks: Ranks) -> None:
    for program in RIGHT:
        ranks(program, 3)
    assert ranks(one_after_another, 3) == [True] * 3


def test_a_message_may_be_taken_in_a_later_cell(server: ForkServer) -> None:
    with Pool(2, server) as pool:
        cells = [
            "works = [comm.isend(torch.ones(n), 1, group) for n in (2, 3)] if rank == 0 else []",
            "works += [comm.isend(torch.ones(4), 1, group)] if rank == 0 else []\n"
            "if rank == 1:\n    a = torch.empty(2)\n    comm.recv(a, 0, group)",
            "if rank == 1:\n    for n in (3, 4):\n        comm.recv(torch.empty(n), 0, group)\n"
            "for work in works:\n    work.wait()",
        ]
        assert [pool.run_cell(cell).verdict for cell in cells] == ["", "", ""]
        last = "comm.send(torch.ones(2), 1, group) if rank == 0 else comm.recv(a.int(), 0, group)"
        assert pool.run_cell(last).verdict == "mismatch"


def test_what_has_failed_is_not_compared_with_a_later_cell(server: ForkServer) -> None:
    with Pool(2, server) as pool:
        failing = (
            "again = group.split([[0, 1]], 'again')\n"
            "work = comm.isend(torch.ones(2), 1, again) if rank == 0 else "
            "comm.irecv(torch.ones(3), 0, again, tag=1)\n1 / 0"
        )
        assert pool.run_cell(failing).verdict == "raised"
        assert pool.run_cell("2").verdict == ""


def test_a_rank_that_is_left_out_is_not_accused(server: ForkServer) -> None:
    with Pool(3, server) as pool:
        cell = "x = torch.ones(2)\ncomm.send(x, 2, group) if rank == 0 else comm.recv(x, 0, group)"
        assert pool.run_cell(cell, only=[0, 2]).verdict == ""


def test_a_line_is_the_programs_own() -> None:
    ledger = Ledger(0)
    event = ledger.begin("all_reduce", axis="dp", group=(0, 1), payload=4)
    assert ledger.line_of(event).startswith("test_disagreement.py, line ")
    with ledger.within(event):
        part = ledger.begin("send", axis="dp", group=(0, 1), payload=4, peer=1)
    assert ledger.line_of(part) == ledger.line_of(event)
    assert Ledger.from_dict(ledger.to_dict()).line_of(event) == "", "paths stay on this machine"
