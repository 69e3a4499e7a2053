"""Who waits for whom, from reports alone: no process is needed to ask."""

from __future__ import annotations

from typing import Any

import pytest

from course_lib.ranks.pool.autopsy import explain, names, sizes, standstill, table

Report = dict[str, Any]


def waits(call: str = "all_reduce", seq: int = 0, **more: Any) -> Report:
    """A rank inside a communication call; its program slept 5 times and worked 0.07 s so far."""
    threads = {"main": [5, 0.07], "11": [100, 0.03], **more.pop("threads", {})}
    return {
        "state": "running", "talking": True, "call": call, "seq": seq, "axis": "world",
        "group": [0, 1, 2, 3], "peer": -1, "line": 3, "source": f"{call}(...)",
        "shape": [4], "at": 10.0, "carried": 1000, "threads": threads, **more,
    }  # fmt: skip


def sends(to: int, **more: Any) -> Report:
    return waits("send", peer=to, **more)


def receives(source: int, **more: Any) -> Report:
    return waits("recv", peer=source, **more)


def computes(**more: Any) -> Report:
    return {
        "state": "running", "talking": False, "call": "", "line": 9, "source": "heavy()",
        "at": 10.0, "threads": {"main": [5, 0.07]}, **more,
    }  # fmt: skip


FINISHED: Report = {"state": "finished"}
RAISED: Report = {"state": "raised", "error": "ValueError: the fault", "line": 2}
KILLED: Report = {"state": "killed", "error": "was killed by SIGKILL"}


# --- is it a deadlock ----------------------------------------------------------------------------
def still(earlier: list[Report], later: list[Report], seconds: float = 0.5) -> bool:
    """Whether they stand still between two looks; each rank has answered again for the later."""
    renewed = [{**report, "at": report.get("at", 10.0) + seconds} for report in later]
    return standstill(dict(enumerate(earlier)), dict(enumerate(renewed)), seconds)


def test_everybody_waits_and_nothing_moves() -> None:
    assert still([waits()] * 4, [waits()] * 4)


def test_a_rank_that_computes_is_never_a_deadlock() -> None:
    ranks = [waits(), computes(), waits(), waits()]
    assert not still(ranks, ranks)
    assert not still([computes()] * 4, [computes()] * 4)


def test_a_rank_that_waits_for_a_processor_is_never_a_deadlock() -> None:
    assert not still([waits()] * 4, [waits()] * 3 + [waits(runnable=True)])


def test_a_rank_that_does_not_answer_is_never_a_deadlock() -> None:
    ranks = [waits(), {"state": "running"}]
    assert not still(ranks, ranks)


def test_an_answer_that_is_old_says_nothing() -> None:
    """A rank that gets no turn cannot answer: its last answer must not stand for a second look."""
    earlier, told_again = {0: waits(), 1: waits()}, {0: waits(at=10.5), 1: waits(at=10.0)}
    assert not standstill(earlier, told_again, 0.5)
    assert standstill(earlier, {0: waits(at=10.5), 1: waits(at=10.4)}, 0.5)


@pytest.mark.parametrize("gone", [FINISHED, RAISED, KILLED])
def test_those_who_are_gone_do_not_move_either(gone: Report) -> None:
    assert still([waits(), gone], [waits(), gone])


def test_all_have_ended() -> None:
    assert not still([FINISHED, RAISED], [FINISHED, RAISED])
    assert not still([], [])


def test_one_look_is_not_enough() -> None:
    assert not still([], [waits()])
    assert not standstill({0: waits()}, {0: waits(), 1: waits()}, 0.5)


@pytest.mark.parametrize(
    "change",
    [
        {"line": 4},
        {"seq": 1},
        {"call": "broadcast"},
        {"peer": 2},
        {"axis": "dp"},
        {"carried": 1001},  # a byte went out or came in
        {"threads": {"main": [6, 0.07]}},  # its program woke up
        {"threads": {"main": [5, 0.08]}},  # its program worked
        {"threads": {"11": [100 + 200, 0.03]}},  # a backend's thread wakes up often: data arrive
        {"threads": {"11": [100, 0.03 + 0.25]}},  # a backend's thread works
    ],
)
def test_what_counts_as_moving(change: dict[str, Any]) -> None:
    assert not still([waits(), waits()], [waits(), waits(**change)])


def test_a_backends_thread_that_idles_is_no_movement() -> None:
    looking_around = waits(threads={"11": [100 + 50, 0.04]})  # gloo's does so 100 times a second
    assert still([waits(), waits()], [looking_around, waits()])


def test_a_thread_that_is_new_is_no_movement_by_itself() -> None:
    assert still([waits()], [waits(threads={"12": [1000, 10.0]})])


# --- in words ------------------------------------------------------------------------------------
def said(*reports: Report) -> str:
    return explain(dict(enumerate(reports)))


def test_different_operations() -> None:
    assert said(waits(), waits(), waits("broadcast"), waits()) == (
        "The ranks are in different calls: ranks 0, 1 and 3 in all_reduce, call 0 on world "
        "[0,1,2,3]; rank 2 in broadcast, call 0 on world [0,1,2,3]. "
        "All ranks of a group must make the same collective calls in the same order."
    )


def test_a_skipped_call() -> None:
    text = said(waits(seq=7), waits(seq=5), waits(seq=7), waits(seq=7))
    assert "rank 1 in all_reduce, call 5 on world" in text
    assert "Rank 1 is 2 behind: a call was skipped or made once too often." in text
    assert "Ranks 0 and 1 are 1 behind" in said(waits(seq=3), waits(seq=3), waits(seq=4))


def test_different_groups() -> None:
    rows = [waits(axis="dp", group=[0, 1]), waits(axis="tp", group=[1, 3])]
    assert said(*rows) == (
        "The ranks wait in different groups: rank 0 in all_reduce, call 0 on dp [0,1]; "
        "rank 1 in all_reduce, call 0 on tp [1,3]. Each group waits for a member that is elsewhere."
    )


def test_different_groups_with_the_same_members() -> None:
    text = said(waits(axis="world", group=[0, 1]), waits(axis="", group=[0, 1]))
    assert "different groups" in text
    assert "rank 1 in all_reduce, call 0 on ranks [0,1]" in text


def test_different_shapes() -> None:
    assert said(waits(), waits(), waits(shape=[5]), waits()) == (
        "Every rank is in the same call, with tensors of different shapes: "
        "ranks 0, 1 and 3: all_reduce of 4 elements, rank 2: of 5."
    )


def test_a_member_that_did_not_run_the_cell() -> None:
    text = explain({0: waits(), 2: waits()})
    assert text == "Ranks 0 and 2 wait for ranks 1 and 3, which did not run this cell."
    assert explain({3: waits()}) == "Rank 3 waits for ranks 0–2, which did not run this cell."


def test_a_rank_that_finished() -> None:
    assert said(waits("barrier"), waits("barrier"), FINISHED, waits("barrier")) == (
        "Ranks 0, 1 and 3 wait in barrier, call 0 on world [0,1,2,3]; rank 2 finished without "
        "making that call. A collective ends when all have called it."
    )


def test_a_rank_that_finished_after_as_many_calls() -> None:
    text = said(waits(made=3), {**FINISHED, "made": 3}, {**FINISHED, "made": 2})
    assert "rank 1 finished and made as many calls (with a tensor of another size?)" in text
    assert "rank 2 finished without making that call" in text
    text = said(waits(made=3, axis="dp"), {**FINISHED, "made": 3})
    assert "rank 1 finished without making that call" in text, "calls on world say nothing of dp"
    text = said(waits("barrier", made=3, shape=[]), {**FINISHED, "made": 3})
    assert "rank 1 finished without making that call" in text, "a barrier has no tensor"


def test_a_rank_that_raised_is_the_cause_also_when_the_others_are_apart() -> None:
    text = said(waits("all_reduce", 4), RAISED, waits("broadcast", 3))
    assert "rank 1 raised an exception before" in text
    assert "rank 0 waits in all_reduce, call 4" in text.replace("Rank", "rank")
    assert "rank 2 waits in broadcast, call 3" in text
    assert "rank 1 ended before" in said(waits(), KILLED)


def test_ranks_apart_while_one_has_finished() -> None:
    assert "in different calls" in said(waits("all_reduce"), waits("broadcast"), FINISHED)


def test_everybody_sends() -> None:
    assert said(sends(1), sends(2), sends(3), sends(0)) == (
        "Everybody sends and nobody receives (rank 0 to 1, 1 to 2, 2 to 3, 3 to 0). "
        "A send ends only when its receiver takes it: start the receive first."
    )


def test_everybody_receives() -> None:
    text = said(receives(1), receives(0, seq=2))
    assert text == (
        "Rank 0 waits for a message from rank 1, which waits in recv from rank 0 (message 2); "
        "rank 1 waits for a message from rank 0, which waits in recv from rank 1 (message 0). "
        "Every send needs its receive."
    )


@pytest.mark.parametrize(
    ("other", "state"),
    [(FINISHED, "has finished"), (RAISED, "has raised an exception"), (KILLED, "has ended")],
)
def test_a_receive_without_its_send(other: Report, state: str) -> None:
    assert f"Rank 0 waits for a message from rank 1, which {state}." in said(receives(1), other)
    text = said(sends(1), other)
    assert f"Rank 0 waits for rank 1, which {state}, to take a message." in text


def test_a_message_to_a_rank_that_does_not_run_the_cell() -> None:
    text = explain({0: sends(3), 1: receives(0)})
    assert "Rank 0 waits for rank 3, which does not run this cell, to take a message" in text
    assert "rank 1 waits for a message from rank 0, which waits in send to rank 3" in text


def test_a_receive_from_anybody() -> None:
    assert said(receives(-1), FINISHED).startswith("Rank 0 waits for a message from anybody.")


def test_a_message_and_a_collective() -> None:
    text = said(receives(1), waits())
    assert "rank 0 in recv from rank 1 (message 0); rank 1 in all_reduce, call 0 on world" in text


def test_a_wait_of_which_little_is_known() -> None:
    unknown = {"state": "running", "talking": True, "call": "work.wait()", "threads": {}}
    assert said(unknown, FINISHED) == (
        "Rank 0 waits in work.wait(); rank 1 finished without making that call. "
        "A collective ends when all have called it."
    )


def test_time_is_up_while_one_still_computes() -> None:
    text = said(waits("barrier"), computes(), waits("barrier"))
    assert text == (
        "Ranks 0 and 2 wait in barrier, call 0 on world [0,1,2,3]; rank 1 is still at work."
    )


def test_the_table_says_what_each_rank_does_and_where() -> None:
    echo = {"state": "raised", "error": "RuntimeError: Connection closed by peer [127.0.0.1]:1"}
    lines = table(dict(enumerate([waits(), receives(2, seq=4), RAISED, KILLED, FINISHED, echo])))
    assert [line.split(maxsplit=2)[2] for line in lines] == [
        "waits in all_reduce, call 0 on world [0,1,2,3]  line 3: all_reduce(...)",
        "waits in recv from rank 2 (message 4)           line 3: recv(...)",
        "raised ValueError: the fault",
        "was killed by SIGKILL",
        "finished",
        "lost its connection to a rank that ended",
    ]
    assert table({0: computes()}) == ["  rank 0  is at work  line 9: heavy()"]


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([2], "rank 2"),
        ([1, 0], "ranks 0 and 1"),
        ([0, 1, 3], "ranks 0, 1 and 3"),
        ([4, 2, 3], "ranks 2–4"),
    ],
)
def test_names(ranks: list[int], text: str) -> None:
    assert names(ranks) == text


# --- the table -----------------------------------------------------------------------------------
def test_many_ranks_that_do_the_same_stand_once() -> None:
    reports = dict.fromkeys(range(16), waits()) | {5: FINISHED}
    assert table(reports) == [
        "  ranks 0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14 and 15  "
        "waits in all_reduce, call 0 on world [0,1,2,3]  line 3: all_reduce(...)",
        "  rank 5                                                      finished",
    ]


def test_a_long_message_does_not_push_the_places_away() -> None:
    long = {**RAISED, "error": "ValueError: " + "word " * 60, "source": "f()"}
    rows = table({0: long, 1: waits()})
    assert max(map(len, rows)) < 120
    assert rows[0].endswith("…  line 2: f()")


# --- sizes ---------------------------------------------------------------------------------------
def test_sizes_of_calls_and_of_messages() -> None:
    assert sizes({0: waits(shape=[4, 5]), 1: {**KILLED, "call": "all_reduce", "shape": [12]}}) == (
        "rank 0: all_reduce of 20 elements, rank 1: of 12"
    )
    assert sizes({0: sends(1, shape=[20]), 1: receives(0, shape=[1])}) == (
        "rank 0: send to rank 1 of 20 elements, rank 1: recv from rank 0 of 1 element"
    )
    assert sizes({0: waits(shape=[4]), 1: waits(shape=[2, 2]), 2: KILLED}) == ""
    assert sizes({0: waits(shape=["x"]), 1: waits(shape=[2])}) == "", "an answer may tell anything"
