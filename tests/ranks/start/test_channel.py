"""Messages between processes: they arrive whole, with what was sent along, or say why not."""

from __future__ import annotations

import os
import random
import signal
import socket
import threading
from pathlib import Path
from types import FrameType

import pytest

from course_lib.ranks.pool.pack import Packed, load_object
from course_lib.ranks.start.channel import Channel, ChannelClosed, anonymous_file, map_file


def test_messages_arrive_whole_and_in_order() -> None:
    here, there = Channel.pair()
    for number in range(200):
        here.send({"number": number, "text": "ä\n\0"}, raw=bytes([number]) * number)
    for number in range(200):
        message, raw, fds = there.receive()
        assert message == {"number": number, "text": "ä\n\0"}
        assert raw == bytes([number]) * number
        assert fds == []


def test_both_directions_at_once() -> None:
    here, there = Channel.pair()
    here.send({"to": "there"})
    there.send({"to": "here"})
    assert here.receive()[0] == {"to": "here"}
    assert there.receive()[0] == {"to": "there"}


@pytest.mark.parametrize("with_file", [False, True])
def test_a_message_larger_than_the_socket_holds(with_file: bool) -> None:
    here, there = Channel.pair()
    data = os.urandom(1 << 20) * 20
    fds = (anonymous_file(8),) if with_file else ()
    sender = threading.Thread(target=here.send, args=({"big": True}, data, fds))
    sender.start()
    message, raw, received = there.receive(5)
    sender.join()
    assert message == {"big": True}
    assert raw == data
    assert [os.fstat(fd).st_size for fd in received] == [8] * with_file


def test_open_files_come_along_in_order() -> None:
    here, there = Channel.pair()
    files = [anonymous_file(size) for size in (10, 20, 30)]
    here.send({"first": 1})
    here.send({"files": 3}, raw=b"x", fds=tuple(files))
    here.send({"last": 1})
    assert there.receive()[2] == []
    _, raw, received = there.receive()
    assert raw == b"x"
    assert [os.fstat(fd).st_size for fd in received] == [10, 20, 30]
    assert not set(received) & set(files), "the receiver has numbers of its own"
    assert there.receive()[0] == {"last": 1}


def test_a_closed_peer_is_said_so_on_both_sides() -> None:
    here, there = Channel.pair()
    here.send({"last": "words"})
    here.close()
    assert there.receive()[0] == {"last": "words"}, "what was sent before must still arrive"
    with pytest.raises(ChannelClosed):
        there.receive()
    with pytest.raises(ChannelClosed):
        there.send({"too": "late"}, raw=b"x" * (1 << 20))


def test_a_message_cut_short() -> None:
    ours, theirs = socket.socketpair()
    ours.sendall(b"\0\0\0\x40\0\0\0\0{")
    ours.close()
    with pytest.raises(ChannelClosed, match="in the middle"):
        Channel(theirs).receive()


def test_time_out_and_then_a_message() -> None:
    here, there = Channel.pair()
    for seconds in (0.01, 0):
        with pytest.raises(TimeoutError):
            there.receive(seconds)
    here.send({"late": True})
    assert there.receive(1)[0] == {"late": True}


def test_the_time_limit_is_for_all_of_a_message() -> None:
    """A sender that was stopped in the middle must not be waited for; what came stays."""
    ours, theirs = socket.socketpair()
    there = Channel(theirs)
    for piece in (b"\0\0\0", b"\x02\0\0\0\x01", b"{", b"}"):
        ours.sendall(piece)
        with pytest.raises(TimeoutError):
            there.receive(0.01)
    ours.sendall(b"!")
    assert there.receive(0) == ({}, b"!", [])


def test_a_message_that_nobody_takes() -> None:
    """Whatever has gone out of it, no later one can follow."""
    here, _there = Channel.pair()
    with pytest.raises(TimeoutError, match="nobody takes it"):
        here.send({}, raw=bytes(1 << 24), timeout=0.01)
    with pytest.raises(ChannelClosed):
        here.send({"next": True})


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs a timer that interrupts")
def test_interrupts_at_any_moment_tear_no_message() -> None:
    """The numbers come in order, and each whole; an interrupt may only drop one as a whole."""
    here, there = Channel.pair()
    count = 20_000

    def send_all() -> None:
        for n in range(count):
            here.send({"n": n}, raw=b"x" * (n % 97))
        here.close()

    def interrupt(_: int, frame: FrameType | None) -> None:
        signal.setitimer(signal.ITIMER_REAL, dice.uniform(1e-5, 1e-3))
        while frame and frame.f_code is not Channel.receive.__code__:
            frame = frame.f_back
        if frame:  # elsewhere, in the lines of this test, nothing catches it
            signal.raise_signal(signal.SIGINT)

    dice, got, interrupts = random.Random(3), list[int](), 0
    before = signal.signal(signal.SIGALRM, interrupt)
    threading.Thread(target=send_all, daemon=True).start()
    signal.setitimer(signal.ITIMER_REAL, 1e-3)
    try:
        while True:
            try:
                message, raw, _ = there.receive(20)
            except KeyboardInterrupt:
                interrupts += 1
            except ChannelClosed:
                break
            else:
                got.append(message["n"])
                assert raw == b"x" * (message["n"] % 97)
    finally:
        signal.signal(signal.SIGALRM, signal.SIG_IGN)  # first: the handler sets the timer again
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert got == sorted(set(got))
    assert interrupts > 0
    assert count - len(got) <= interrupts


def test_an_anonymous_file_is_shared_or_private_and_has_no_name() -> None:
    fd = anonymous_file(4096)
    shared, other, private = (
        map_file(os.dup(fd), writable=True),
        map_file(os.dup(fd), writable=True),
        map_file(os.dup(fd), writable=False),
    )
    shared[:4] = b"ours"
    assert other[:4] == b"ours"
    assert private[:4] == b"ours"
    private[:4] = b"mine"
    assert private[:4] == b"mine"
    assert shared[:4] == b"ours", "a private copy was written through"
    assert not os.path.exists(os.readlink(f"/proc/self/fd/{fd}")) or not Path("/proc").exists()
    os.close(fd)


def test_mapping_takes_the_open_file_over() -> None:
    fd = anonymous_file(16)
    mapped = map_file(fd, writable=True)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
    assert len(mapped) == 16


def test_an_object_is_packed_once_and_sent_to_several() -> None:
    import torch

    value = {"a": torch.arange(100_000.0), "b": [torch.ones(3, dtype=torch.int8)] * 2, "c": "text"}
    ends = [Channel.pair() for _ in range(3)]
    with Packed(value) as packed:
        for here, _ in ends:
            packed.send(here, {"with": "it"})
    arrived = []
    for _, there in ends:
        message, raw, fds = there.receive()
        assert message["with"] == "it"
        assert len(raw) < 4096, "the tensor went through the socket"
        arrived.append(load_object(message, raw, fds))
    arrived[0]["a"].zero_()
    for got in arrived[1:]:
        assert torch.equal(got["a"], value["a"]), "one receiver's writing reached another"
        assert got["b"][0] is got["b"][1], "one object became two"
        assert got["c"] == "text"


def test_an_interrupt_in_the_middle_of_a_message_loses_nothing_of_it() -> None:
    """What came before it waits for the next call; an open file that came along as well."""
    ours, theirs = socket.socketpair()
    there, fd = Channel(theirs), anonymous_file(5)
    socket.send_fds(ours, [b"\0\0\0\x02\0\0\0\x03{"], [fd])

    before = signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        with pytest.raises(KeyboardInterrupt):
            there.receive()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    ours.sendall(b"}raw")
    message, raw, files = there.receive()
    assert (message, raw) == ({}, b"raw")
    assert [os.fstat(file).st_size for file in files] == [5]
    for file in (fd, *files):
        os.close(file)


def test_the_files_of_a_message_that_never_came_whole_are_closed() -> None:
    ours, theirs = socket.socketpair()
    there, fd = Channel(theirs), anonymous_file(5)
    before = len(os.listdir("/proc/self/fd")) if Path("/proc").exists() else 0
    socket.send_fds(ours, [b"\0\0\0\x02\0\0\0\x03{"], [fd])
    ours.close()
    with pytest.raises(ChannelClosed):
        there.receive()
    there.close()
    assert not before or len(os.listdir("/proc/self/fd")) == before - 2, "two sockets, no file"
    os.close(fd)
