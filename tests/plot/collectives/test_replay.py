"""States that follow from recorded messages: right for a right ring, wrong for a wrong one."""

from __future__ import annotations

import pytest

from course_lib.plot.collectives.messages import find_call
from course_lib.plot.collectives.replay import join, replay
from course_lib.trace import Ledger, Timeline


@pytest.mark.parametrize("size", [2, 3, 4, 5, 8])
def test_a_ring_ends_with_every_chunk_complete(record, ring, size):
    story = replay(record(size, ring(size)))
    assert len(story.states) == 1 + 2 * (size - 1)
    assert story.missing() == []
    assert len(story.complete(story.states[-1])) == size * size


def test_reduce_scatter_leaves_rank_r_with_chunk_r(ring_record):
    story = replay(ring_record)
    assert story.complete(story.states[3]) == {(rank, rank) for rank in range(4)}
    assert story.states[1].held[1, 3] == (1, 1, 0, 0)  # rank 0 sent its chunk 3 to rank 1


def test_bytes_so_far_are_those_of_the_messages(ring_record):
    story = replay(ring_record)
    step = 1 << 20
    assert [set(state.sent.values()) for state in story.states] == [{k * step} for k in range(7)]
    assert story.states[-1].sent == dict(enumerate(ring_record.sent("all_reduce")))


def test_a_lost_message_leaves_its_chunk_incomplete(record, ring):
    story = replay(record(4, ring(4), lost=[23]))  # the last one: chunk 1, from rank 3 to rank 0
    assert [m.arrived for m in story.states[-1].messages] == [True, True, True, False]
    assert story.missing() == [(0, 1)]


def test_after_a_lost_message_the_next_one_takes_its_place(record, ring):
    story = replay(record(4, ring(4), lost=[11]))  # messages between two ranks keep their order
    assert not story.states[-1].messages[-1].arrived
    assert story.missing() == [(0, 1)]


def test_a_message_that_was_never_sent_leaves_chunks_incomplete(record, ring):
    messages = ring(4)
    assert set(replay(record(4, messages[:5] + messages[6:])).missing()) >= {(2, 3), (3, 3)}


def test_a_receive_that_never_ended_has_not_arrived(ring_record):
    last = [event for event in ring_record.rank(2).events if event.op == "recv"][-1]
    last.end = None
    assert replay(ring_record).missing() == [(2, last.chunk)]


def test_a_wrong_chunk_is_shown_wrong(record, ring):
    wrong = [(source, to, step, (chunk + (step == 1)) % 4) for source, to, step, chunk in ring(4)]
    assert replay(record(4, wrong)).missing()


def test_a_part_counted_twice_is_seen():
    assert join((1, 1, 0), (0, 1, 1)) == (1, 2, 1)
    assert join((1, 0, 0), (0, 1, 1)) == (1, 1, 1)
    assert join((1, 0, 0), (1, 1, 1)) == (1, 1, 1)


@pytest.mark.parametrize("size", [2, 3, 5, 8])
def test_a_tree_brings_the_tensor_to_all(record, tree, size):
    story = replay(record(size, tree(size), op="broadcast", algorithm="tree", root=0), "broadcast")
    assert story.chunks == (-1,)
    assert story.missing() == []
    assert set(story.states[-1].held.values()) == {(1,) + (0,) * (size - 1)}


def test_both_halves_of_the_ring_alone(record, ring):
    scatter = replay(record(4, ring(4)[:12], op="reduce_scatter"), "reduce_scatter")
    gather = replay(record(4, ring(4)[12:], op="all_gather"), "all_gather")
    assert scatter.missing() == gather.missing() == []
    assert len(scatter.goal) == 4
    assert gather.states[-1].held[0, 3] == (0, 0, 0, 1)


def test_the_last_call_is_taken_unless_another_is_asked_for(record, ring):
    books = [record(3, ring(3)), record(3, ring(3)[:6])]
    ledgers = []
    for rank in range(3):
        first, second = (timeline.rank(rank).events for timeline in books)
        ledger = Ledger(rank)
        ledger.events = list(first)
        for event in second:
            event.number += len(first)
            event.parent += len(first) * (event.parent >= 0)
            event.seq += event.parent < 0
            event.begin += 1.0
            event.end = (event.end or 0) + 1.0
            ledger.events.append(event)
        ledgers.append(ledger)
    timeline = Timeline(ledgers)
    assert len(replay(timeline).states) == 3
    assert len(replay(timeline, call=0).states) == 5
    with pytest.raises(ValueError, match="2 recorded calls"):
        replay(timeline, call=2)


@pytest.mark.parametrize("late", [0, 2])
def test_which_call_is_the_last_does_not_depend_on_who_came_first(late):
    """Two groups make a call of their own at once: the last one is that of the higher ranks."""
    ledgers = [Ledger(rank) for rank in range(4)]
    for rank, ledger in enumerate(ledgers):
        pair = (rank // 2 * 2, rank // 2 * 2 + 1)
        call = ledger.begin("all_reduce", axis="dp", group=pair, payload=8, algorithm="ring")
        call.begin = 1.0 + (pair[0] == late)
    assert find_call(Timeline(ledgers), "all_reduce", -1).keys() == {2, 3}
    assert find_call(Timeline(ledgers), "all_reduce", 0).keys() == {0, 1}


def test_messages_outside_a_collective_are_taken_too(record, ring):
    timeline = record(4, ring(4))
    for ledger in timeline.ledgers:
        ledger.events = [event for event in ledger.events if event.parent >= 0]
        for event in ledger.events:
            event.parent = -1
    story = replay(timeline)
    assert story.group == (0, 1, 2, 3)
    assert story.missing() == []


def test_refusals_say_what_was_found(record, ring):
    with pytest.raises(ValueError, match="known: all_reduce"):
        replay(record(2, ring(2)), "barrier")
    with pytest.raises(ValueError, match="0 messages"):
        replay(Timeline([Ledger(0)]))
    with pytest.raises(ValueError, match="1 messages, 0 with a step"):
        replay(record(2, [(0, 1, -1, 0)]))


def test_a_message_of_several_chunks_is_taken_apart(record):
    # Halves of four chunks, then quarters, as halving and doubling send them.
    timeline = record(4, [(0, 2, 0, 2), (2, 0, 0, 0), (2, 3, 1, 3)])
    for ledger in timeline.ledgers:
        for event in ledger.events:
            event.sent *= 2 if event.step == 0 else 1
    first = replay(timeline).states[1]
    assert [(m.source, m.chunk, m.count >> 20) for m in first.messages] == [
        (0, 2, 1), (0, 3, 1), (2, 0, 1), (2, 1, 1)]  # fmt: skip


def test_pieces_of_a_chunk_are_one_message(record, ring):
    twice = [message for message in ring(3) for _ in range(2)]
    timeline = record(3, twice, payload=3 << 20)
    for ledger in timeline.ledgers:
        for event in ledger.events:
            event.sent //= 2
    story = replay(timeline)
    assert [len(state.messages) for state in story.states] == [0, 3, 3, 3, 3]
    assert story.missing() == []
