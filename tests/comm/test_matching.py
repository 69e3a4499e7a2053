"""The matching engine: what completes together, what does not fit, and who can never go on."""

from __future__ import annotations

from typing import Any

import pytest

from course_lib.comm import CommError
from course_lib.comm.matching import Matching, Meeting, Post, find_deadlock, find_difference


def on_all(engine: Matching, group: int, op: str, **fields: Any) -> list[Meeting]:
    """Every member posts the same; the meetings that they get."""
    return [engine.post(Post(rank, op, group, **fields)) for rank in engine.groups[group]]


def cut(engine: Matching, *parts: tuple[int, ...]) -> dict[int, int]:
    """All ranks split the world; rank to the number of its group."""
    whose = {rank: part for part in parts for rank in part}
    [*_, meeting] = [engine.post(Post(rank, "split", part=whose[rank])) for rank in whose]
    return meeting.made


def test_a_collective_is_complete_when_the_last_member_posts() -> None:
    engine = Matching(3)
    first = engine.post(Post(0, "all_reduce", dtype="float64", numel=4, item=8, reduction="sum"))
    assert not first.complete and first.lacking == (1, 2)
    again = engine.post(Post(0, "barrier"))  # asynchronous calls: the second before the first ends
    engine.post(Post(2, "all_reduce", dtype="float64", numel=4, item=8, reduction="sum"))
    last = engine.post(Post(1, "all_reduce", dtype="float64", numel=4, item=8, reduction="sum"))
    assert last is first and first.complete and find_difference(first) is None
    assert engine.open == [again] and again.seq == 1 and list(again.posts) == [0]


def test_calls_of_two_groups_pass_each_other_by() -> None:
    engine = Matching(4)
    made = cut(engine, (0, 1), (3, 2))
    assert engine.groups[made[3]] == (3, 2) and made[2] == made[3] != made[0] == made[1]
    on_world = engine.post(Post(0, "barrier"))
    assert not engine.post(Post(1, "barrier", made[1])).complete
    assert engine.post(Post(0, "barrier", made[0])).complete
    assert all(meeting.seq == 0 for meeting in on_all(engine, made[3], "barrier"))
    assert on_world.lacking == (1, 2, 3)


def test_groups_of_the_same_ranks_that_were_made_one_by_one_are_apart() -> None:
    engine = Matching(2)
    first, second = cut(engine, (0, 1)), cut(engine, (0, 1))
    waits = engine.post(Post(0, "barrier", first[0]))
    assert not engine.post(Post(1, "barrier", second[1])).complete and not waits.complete


def test_a_send_waits_for_its_receive_and_messages_do_not_overtake() -> None:
    engine = Matching(3)
    size = {"dtype": "float64", "numel": 4, "item": 8}
    sends = [engine.post(Post(0, "send", peer=1, **size)) for _ in range(2)]
    tagged = engine.post(Post(0, "send", peer=1, tag=7, **size))
    back = engine.post(Post(1, "send", peer=0, **size))
    assert not any(meeting.complete for meeting in (*sends, tagged, back))
    assert engine.post(Post(1, "recv", peer=0, **size)) is sends[0]
    assert engine.post(Post(1, "recv", peer=0, tag=7, **size)) is tagged
    assert sends[0].complete and tagged.complete and not sends[1].complete
    assert engine.post(Post(0, "recv", peer=1, **size)) is back


WHOLE = {"dtype": "float64", "numel": 4, "item": 8, "reduction": "sum"}


@pytest.mark.parametrize(
    ("kind", "op", "usual", "odd", "says"),
    [
        ("operation", "all_reduce", WHOLE, {"op": "reduce", "root": 0}, "rank 2 called reduce"),
        ("reduction", "all_reduce", WHOLE, {"reduction": "max"}, "rank 2 asked for the max"),
        ("dtype", "all_reduce", WHOLE, {"dtype": "float32"}, "rank 2 gave float32"),
        ("size", "all_reduce", WHOLE, {"numel": 5}, "rank 2 gave 5 elements of float64 (40 bytes)"),
        ("root", "broadcast", {"root": 0}, {"root": 1}, "rank 2 named index 1 as the root"),
    ],
)  # fmt: skip
def test_what_differs_is_named(
    kind: str, op: str, usual: dict[str, Any], odd: dict[str, Any], says: str
) -> None:
    engine = Matching(4)
    for rank in (3, 2, 1, 0):
        fields = {"op": op, "axis": "dp", **usual, **(odd if rank == 2 else {})}
        assert engine.post(Post(rank, **fields)).complete == (rank == 0)
        if rank == 1:
            early = engine.difference()
            assert early is not None and early.kind == kind, "known before all have come"
    assert engine.difference() is None and not engine.open
    found = find_difference(_last(Matching(4), op, usual, odd))
    assert found is not None and (found.kind, found.ranks) == (kind, (2,))
    assert found.text.startswith("Call 0 on dp [0, 1, 2, 3] is not the same everywhere: ranks 0, 1")
    assert found.text.endswith(f"; {says}.")


def _last(engine: Matching, op: str, usual: dict[str, Any], odd: dict[str, Any]) -> Meeting:
    posts = [{"op": op, "axis": "dp", **usual, **(odd if rank == 2 else {})} for rank in range(4)]
    return [engine.post(Post(rank, **post)) for rank, post in enumerate(posts)][-1]


@pytest.mark.parametrize(
    ("sent", "taken", "kind"),
    [
        (("float64", 4, 8), ("float64", 4, 8), None),
        (("float64", 4, 8), ("uint8", 32, 1), None),
        (("float64", 4, 8), ("float64", 3, 8), "size"),
        (("float32", 2, 4), ("int64", 1, 8), "dtype"),
    ],
)
def test_a_message_arrives_as_it_was_sent(
    sent: tuple[str, int, int], taken: tuple[str, int, int], kind: str | None
) -> None:
    engine = Matching(2)
    engine.post(Post(1, "send", 0, *sent, peer=0))
    meeting = engine.post(Post(0, "recv", 0, *taken, peer=1))
    found = find_difference(meeting)
    assert (found and found.kind) == kind
    if found is not None:
        assert found.ranks == (0, 1) and "rank 1 sends" in found.text and "takes" in found.text


def test_an_all_to_all_takes_what_is_given() -> None:
    def meet(taken: tuple[int, int]) -> Meeting:
        engine = Matching(2)
        engine.post(Post(0, "all_to_all", 0, "int64", 3, 8, given=(1, 2), taken=(1, 5)))
        return engine.post(Post(1, "all_to_all", 0, "int64", 6, 8, given=(5, 1), taken=taken))

    assert find_difference(meet((2, 1))) is None, "members may give different amounts"
    found = find_difference(meet((3, 1)))
    assert found is not None and (found.kind, found.meeting.seq) == ("sizes", 0)
    assert "rank 0 gives 2 elements to rank 1; rank 1 takes 3 elements from rank 0" in found.text


def test_members_of_a_new_group_name_the_same_ranks() -> None:
    engine = Matching(2)
    engine.post(Post(0, "split", part=(0, 1)))
    meeting = engine.post(Post(1, "split", part=(1, 0)))
    found = find_difference(meeting)
    assert found is not None and found.kind == "parts" and len(engine.groups) == 1


def test_a_deadlock_is_known_exactly() -> None:
    engine = Matching(4)
    reduce = engine.post(Post(0, "all_reduce", axis="dp", **WHOLE))
    recv = engine.post(Post(1, "recv", peer=2, numel=1))
    send = engine.post(Post(2, "send", peer=3, numel=1))
    waiting = {0: reduce, 1: recv, 2: send}
    assert find_deadlock(waiting, computing={3}) is None, "rank 3 may still receive"
    found = find_deadlock(waiting, computing=())
    assert found is not None and dict(found.stuck) == waiting and found.ended == (3,)
    assert found.text == (
        "Rank 0 waits in all_reduce, call 0 on dp [0, 1, 2, 3] for ranks 1, 2 and 3; "
        "rank 1 waits in recv from rank 2 (message 0) for rank 2; "
        "rank 2 waits in send to rank 3 (message 0) for rank 3; rank 3 has ended."
    )


def test_some_are_stuck_for_good_while_another_computes() -> None:
    engine = Matching(3)
    sends = {rank: engine.post(Post(rank, "send", peer=1 - rank, numel=1)) for rank in (0, 1)}
    found = find_deadlock(sends, computing={2})
    assert found is not None and set(found.stuck) == {0, 1} and found.ended == ()
    assert find_deadlock({0: sends[0]}, computing={1, 2}) is None


def test_a_rank_whose_call_is_complete_is_not_stuck() -> None:
    engine = Matching(2)
    engine.post(Post(0, "barrier"))
    complete = engine.post(Post(1, "barrier"))
    later = engine.post(Post(1, "recv", peer=0, numel=1))
    assert find_deadlock({0: complete, 1: later}, computing=()) is None


@pytest.mark.parametrize(
    "post",
    [
        Post(2, "barrier"),
        Post(0, "barrier", 1),
        Post(0, "fly"),
        Post(0, "send", peer=0),
        Post(0, "send", peer=2),
        Post(0, "broadcast", root=2),
        Post(0, "all_to_all", given=(1,), taken=(1, 1)),
        Post(0, "split", part=(1,)),
    ],
)
def test_calls_that_cannot_be_are_refused(post: Post) -> None:
    engine = Matching(2)
    with pytest.raises(CommError):
        engine.post(post)
    assert not engine.open
    assert on_all(engine, 0, "barrier")[-1].complete, "a refused call is not counted"
