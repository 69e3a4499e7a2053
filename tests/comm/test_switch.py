"""The switch by itself: sums in a fixed order, one book, and what no rank of ours says."""

from __future__ import annotations

import json
import os
import struct
import time
from contextlib import suppress

import pytest
import torch

from course_lib.comm import CommError, Group, irecv, isend, recv
from course_lib.comm.matching import Deadlock, Difference, Post
from course_lib.comm.switch import Booked, Garbled, Link, Mark, Switch, SwitchTransport
from course_lib.comm.switch.link import Call
from course_lib.trace import Ledger, wire_bytes


class Net:
    """A switch and all its ranks in this one process; calls are started, heard, then waited for."""

    def __init__(self, world: int) -> None:
        self.switch = Switch(world)
        self.lines = [os.dup(self.switch.files(rank)[0]) for rank in range(world)]
        ledgers = [Ledger(rank) for rank in range(world)]
        self.links = [Link(*self.switch.files(rank), ledger) for rank, ledger in enumerate(ledgers)]
        self.groups = [
            Group(
                range(world), rank, "world", link.ledger, SwitchTransport(link, rank, range(world))
            )
            for rank, link in enumerate(self.links)
        ]

    def start(self, rank: int, op: str, tensor: torch.Tensor, **fields: object) -> Call:
        """Posts one rank's call, and has it heard."""
        post = Post(rank, op, 0, str(tensor.dtype).removeprefix("torch."), tensor.numel(),
                    tensor.element_size(), **fields)  # type: ignore[arg-type]  # fmt: skip
        call = self.links[rank].post(post, tensor, tensor, None)
        self.switch.hear(rank)
        return call


def parts(world: int, dtype: torch.dtype) -> list[torch.Tensor]:
    made = torch.Generator().manual_seed(3)
    return [torch.randn(1000, generator=made, dtype=torch.float64).to(dtype) for _ in range(world)]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_sums_are_made_in_the_order_of_the_ranks(dtype: torch.dtype) -> None:
    """Bit for bit, whoever comes first, in the tensor's own dtype."""
    given = parts(4, dtype)
    wanted = ((given[0] + given[1]) + given[2]) + given[3]
    for order in ((0, 1, 2, 3), (3, 1, 0, 2)):
        net = Net(4)
        tensors = [each.clone() for each in given]
        calls = [net.start(rank, "all_reduce", tensors[rank], reduction="sum") for rank in order]
        assert all(call.wait() == 0 for call in calls)
        assert all(torch.equal(tensor, wanted) for tensor in tensors)


def test_the_book_has_every_call_with_its_bytes_and_times() -> None:
    net, tensors = Net(2), [torch.ones(5), torch.ones(5)]
    before = time.monotonic()
    net.start(0, "all_reduce", tensors[0], reduction="max")
    net.links[1].mark("ready")
    net.switch.hear(1)
    (entry,) = net.switch.book[0]
    assert isinstance(entry, Booked) and entry.event.end is None
    net.start(1, "all_reduce", tensors[1], reduction="max").wait()
    mark, other = net.switch.book[1]
    assert isinstance(mark, Mark) and isinstance(other, Booked)
    assert (mark.name, mark.known) == ("ready", 0)
    assert before < entry.event.begin < mark.at < other.event.begin < (entry.event.end or 0.0)
    for rank, event in enumerate((entry.event, other.event)):
        assert (event.op, event.group, event.dtype, event.payload) == (
            "all_reduce", (0, 1), "float32", 20,
        )  # fmt: skip
        assert (event.sent, event.received) == wire_bytes("all_reduce", 20, 2, rank, 4)


def test_calls_that_do_not_fit_never_end_and_are_named() -> None:
    net, tensors = Net(2), [torch.ones(5), torch.ones(6)]
    calls = [net.start(rank, "all_reduce", tensors[rank], reduction="sum") for rank in (0, 1)]
    assert isinstance(net.switch.difference, Difference) and net.switch.difference.kind == "size"
    assert not any(call.is_completed() for call in calls)
    net.switch.refuse_all(net.switch.difference.text)
    with pytest.raises(CommError, match="rank 1 gave 6 elements of float32"):
        calls[0].wait()
    assert torch.equal(tensors[0], torch.ones(5))


def test_a_wait_has_a_limit() -> None:
    net = Net(2)
    work = irecv(torch.empty(1), 1, net.groups[0])
    with pytest.raises(RuntimeError, match="did not end in time"):
        work.wait(0.01)


def test_a_standstill_is_known_only_when_all_wait() -> None:
    net = Net(2)
    first, second = (net.start(rank, "barrier", torch.empty(0)) for rank in (0, 1))
    assert first.wait() == second.wait() == 0
    stuck = [isend(torch.ones(1), 1 - rank, net.groups[rank]) for rank in (0, 1)]
    assert net.switch.hear(0) and net.switch.hear(1)
    assert net.switch.standstill({0, 1}) is None, "nobody waits yet: they compute"
    net.links[0].arena.waits_for = 1
    assert net.switch.standstill({0, 1}) is None
    assert isinstance(net.switch.standstill({0}), Deadlock), "rank 1 has ended"
    net.links[1].arena.waits_for = 1
    found = net.switch.standstill({0, 1})
    assert isinstance(found, Deadlock) and set(found.stuck) == {0, 1}
    data = torch.zeros(1)
    irecv(data, 1, net.groups[0])
    net.links[0].flush()
    net.switch.hear(0)
    assert net.switch.standstill({0, 1}) is None, "rank 1's send is complete"
    assert not stuck[0].is_completed() and stuck[1].is_completed()


def test_a_message_arrives_as_the_bytes_it_was_when_sent() -> None:
    net, data = Net(2), torch.tensor([1.5, 2.5], dtype=torch.float64)
    sending = isend(data, 1, net.groups[0])
    data.zero_()
    net.switch.hear(0)
    taken = torch.empty(16, dtype=torch.uint8)
    work = irecv(taken, 0, net.groups[1])
    net.links[1].flush()
    net.switch.hear(1)
    work.wait()
    assert taken.view(torch.float64).tolist() == [1.5, 2.5]
    with pytest.raises(CommError, match="must not change before it has been waited for"):
        sending.wait()


def test_memory_that_was_given_back_by_hand_is_refused_and_not_written() -> None:
    net, freed = Net(2), torch.ones(4)
    freed.untyped_storage().resize_(0)
    for start in (isend, irecv):
        with pytest.raises(CommError, match="a storage of 0 bytes, of the 16 that they need"):
            start(freed, 1, net.groups[0])


def test_what_arrives_is_written_past_autograd_as_a_network_writes() -> None:
    net, taken = Net(2), torch.zeros(2)
    isend(torch.ones(2), 1, net.groups[0])
    net.switch.hear(0)
    work, version = irecv(taken, 0, net.groups[1]), taken._version
    net.links[1].flush()
    net.switch.hear(1)
    work.wait()
    assert taken.tolist() == [1, 1] and taken._version == version


def test_what_cannot_be_added_up_is_refused() -> None:
    net = Net(2)
    call = net.start(0, "all_reduce", torch.ones(2, dtype=torch.bool), reduction="sum")
    with pytest.raises(CommError, match="cast it first"):
        call.wait()


def test_memory_is_given_back_and_its_end_is_said() -> None:
    arena, quarter = Net(1).links[0].arena, 1 << 28
    for _ in range(20):
        places = [arena.take(quarter) for _ in range(3)]
        assert all(place % 64 == 0 for place in places)
        arena.give_back(places[1], quarter)
        assert arena.take(quarter // 2) == places[1]
        arena.give_back(places[1], quarter // 2)
        with pytest.raises(CommError, match="are all"):
            arena.take(2 * quarter)
        arena.give_back(places[0], quarter)
        arena.give_back(places[2], quarter)


def frame(text: str) -> bytes:
    return struct.pack("<I", len(text)) + text.encode()


GOOD = '["all_reduce",0,"float32",4,4,"sum",-1,-1,0,[],[],[],"",64,64,4,0,1,""]'


@pytest.mark.parametrize(
    "said",
    [
        b"\xff" * 64,
        frame("no JSON"),
        frame("[" * 50_000),
        frame("{}"),
        frame('["mark", "no number"]'),
        frame(GOOD.replace('"float32",4', '"float32",-4')),
        frame(GOOD.replace('"float32",4', '"float32",4000000000')),
        frame(GOOD.replace("64,64", "0,64")),
        frame(GOOD.replace("64,64", "64,1073741820")),
        frame(GOOD.replace("float32", "float99")),
        frame(GOOD.replace('"float32",4,4', '"qint8",4,1')),  # torch would end the switch
        frame(GOOD.replace('"float32",4,4', '"quint4x2",4,1')),
        frame(GOOD.replace("4,4,", "4,8,")),
        frame(GOOD.replace('-1,-1,0', f'-1,-1,{1 << 70}')),
        frame(GOOD.replace("[],[],[]", '["x"],[],[]')),
    ],
)  # fmt: skip
def test_what_is_no_call_is_refused(said: bytes) -> None:
    net = Net(2)
    os.write(net.lines[0], frame(GOOD))
    assert net.switch.hear(0) and len(net.switch.book[0]) == 1
    os.write(net.lines[0], said)
    with pytest.raises(Garbled):
        net.switch.hear(0)


def test_whatever_a_rank_says_the_switch_goes_on() -> None:
    """Every field of a call replaced by every odd value: it is carried, refused or garbled."""
    odd: list[object] = [
        -1,
        0,
        1,
        2,
        1 << 40,
        "",
        "send",
        "recv",
        "split",
        "max",
        "bool",
        [],
        [0],
        [1, 1],
        None,
        1.5,
    ]
    for place in range(19):
        for value in odd:
            net, told = Net(2), json.loads(GOOD)
            told[place] = value
            with suppress(Garbled):
                for rank in (0, 1):
                    os.write(net.lines[rank], frame(json.dumps(told)))
                    net.switch.hear(rank)


def test_sizes_that_only_a_liar_gives_end_the_call_and_not_the_switch() -> None:
    net = Net(2)
    for rank in (0, 1):
        os.write(net.lines[rank], frame(GOOD.replace("64,64,4", "64,64,9")))
        assert net.switch.hear(rank)
    assert net.switch.difference is None and len(net.switch.book[1]) == 1


def test_a_rank_that_is_gone_is_noticed() -> None:
    net = Net(2)
    net.switch.close()
    with pytest.raises(CommError, match="the switch is gone"):
        recv(torch.empty(1), 1, net.groups[0])


def test_a_rank_that_never_stops_calling_gets_its_turns_only() -> None:
    """What one hearing leaves is taken by the next, and nothing is lost or out of order."""
    net = Net(2)
    size = 4 << 20
    big = GOOD.replace('"float32",4', f'"float32",{size}').replace("64,64,4", f"64,64,{size}")
    count = 30  # of about 10 ms each
    for line in net.lines:
        os.write(line, frame(big) * count)
    net.switch.hear(0)
    hearings = 0
    while len(net.switch.book[1]) < count:
        before = len(net.switch.book[1])
        net.switch.hear(1)
        assert len(net.switch.book[1]) > before
        hearings += 1
        assert 1 in net.switch.behind or len(net.switch.book[1]) == count
    assert hearings > 1
    assert all(entry.event.end for entry in net.switch.book[1] if isinstance(entry, Booked))
