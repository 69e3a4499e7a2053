"""Messages between two processes of one machine: a JSON header, raw bytes, and open files."""

from __future__ import annotations

import json
import math
import mmap
import os
import select
import socket
import struct
import tempfile
import time
from array import array
from contextlib import suppress
from typing import Any

from course_lib.ranks.system.interrupts import held, interruptible

HEADER = struct.Struct("!II")  # bytes of the JSON part, bytes of the raw part
MAX_FDS = 16
NUMBER = array("i").itemsize  # bytes of a file number


class ChannelClosed(EOFError):
    """The other side has closed, or is gone."""


class Channel:
    """One end of a socket pair that carries whole messages.

    Args:
        sock: a connected stream socket of the Unix family.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._begun = bytearray()  # of the message that is coming in, and its open files
        self._files: list[int] = []

    @classmethod
    def pair(cls) -> tuple[Channel, Channel]:
        """Two connected channels."""
        first, second = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        return cls(first), cls(second)

    @classmethod
    def from_fd(cls, fd: int) -> Channel:
        """The channel whose socket is the open file `fd`, which it then owns."""
        return cls(socket.socket(fileno=fd))

    def fileno(self) -> int:
        """The socket's file number, for select."""
        return self._sock.fileno()

    def send(
        self,
        message: dict[str, Any],
        raw: bytes = b"",
        fds: tuple[int, ...] = (),
        timeout: float | None = None,
    ) -> None:
        """Sends one message: whole, or not at all.

        A message of which only a part has gone out, since the other side took no more in time or
        an interrupt came, can never be completed: this end is closed for good then.

        Args:
            message: JSON-ready.
            raw: bytes that follow it.
            fds: open files that go along; the caller keeps its own.
            timeout: seconds in which the other side must take it; None waits forever.

        Raises:
            ChannelClosed: the other side is gone.
            TimeoutError: it takes nothing.
        """
        text = json.dumps(message).encode()
        data = memoryview(HEADER.pack(len(text), len(raw)) + text + raw)
        size, deadline = len(data), _deadline(timeout)
        with held():
            try:
                while data:
                    try:
                        data = data[self._write(data, fds if len(data) == size else ()) :]
                    except BlockingIOError:
                        self._wait(select.POLLOUT, deadline)
            except BaseException as error:
                if len(data) < size:
                    self._sock.close()
                if isinstance(error, OSError) and not isinstance(error, TimeoutError):
                    raise ChannelClosed(str(error)) from None
                raise

    def _write(self, data: memoryview, fds: tuple[int, ...]) -> int:
        """Hands the system what it takes at once; how many bytes that was."""
        if not fds:  # a process whose calls are filtered may send bytes alone
            return self._sock.send(data, socket.MSG_DONTWAIT)
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", fds))]
        return self._sock.sendmsg([data], rights, socket.MSG_DONTWAIT)

    def receive(self, timeout: float | None = None) -> tuple[dict[str, Any], bytes, list[int]]:
        """Receives one message: the JSON part, the raw part and the open files that came along.

        What has come of a message stays here if the rest does not come in time, or if an
        interrupt comes: the next call goes on with it.

        Args:
            timeout: seconds to wait for all of it; 0 takes only what is there, None waits forever.

        Raises:
            ChannelClosed: the other side has closed or is gone.
            TimeoutError: it did not come whole in time.
        """
        deadline = _deadline(timeout)
        with held():
            while len(self._begun) < (size := self._size()):
                try:
                    self._read(size - len(self._begun))
                except BlockingIOError:
                    self._wait(select.POLLIN, deadline)
                except ConnectionResetError as error:
                    raise ChannelClosed(str(error)) from None
        data, files = self._begun, self._files
        self._begun, self._files = bytearray(), []
        middle = HEADER.size + HEADER.unpack_from(data)[0]
        return json.loads(data[HEADER.size : middle]), bytes(memoryview(data)[middle:]), files

    def _size(self) -> int:
        """Bytes of the message that is coming in, as far as is known: those of its header first."""
        if len(self._begun) < HEADER.size:
            return HEADER.size
        return HEADER.size + sum(HEADER.unpack_from(self._begun))

    def _read(self, most: int) -> None:
        """Takes what is there of the next bytes, and the open files that lie beside them."""
        room = 0 if self._begun else socket.CMSG_LEN(MAX_FDS * NUMBER)
        # Not `recv_fds`, which forgets its flags.
        piece, beside, _, _ = self._sock.recvmsg(min(most, 1 << 20), room, socket.MSG_DONTWAIT)
        for _, _, data in beside:
            self._files += array("i", data[: len(data) - len(data) % NUMBER])
        if not piece:
            raise ChannelClosed("closed in the middle of a message" if self._begun else "closed")
        self._begun += piece

    def wait(self, timeout: float) -> None:
        """Waits until something has come, the other side has closed, or the time is over."""
        with suppress(TimeoutError):
            self._wait(select.POLLIN, _deadline(timeout))

    def _wait(self, event: int, deadline: float) -> None:
        """Waits until there is something to read, or room to write.

        Raises:
            TimeoutError: the deadline has come first.
        """
        poller = select.poll()  # `select` itself knows no file number beyond 1023
        poller.register(self._sock, event)
        left = None if deadline == math.inf else max(0.0, deadline - time.monotonic()) * 1000
        with interruptible():
            if not poller.poll(left):
                raise TimeoutError("nothing came" if event == select.POLLIN else "nobody takes it")

    def close(self) -> None:
        """Closes this end; the other end's next `receive` raises ChannelClosed.

        So are the files of a message that never came whole.
        """
        while self._files:
            os.close(self._files.pop())
        self._sock.close()


def _deadline(timeout: float | None) -> float:
    """The time on the monotonic clock at which so many seconds have passed."""
    return math.inf if timeout is None else time.monotonic() + timeout


def anonymous_file(size: int) -> int:
    """An open file without a name, `size` bytes long, in memory where the system can do that.

    It is gone when its last holder closes it or dies, so nothing can be left behind.
    """
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("course")
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.ftruncate(fd, size)
    return fd


def map_file(fd: int, *, writable: bool) -> mmap.mmap:
    """Maps a file from `anonymous_file` and closes `fd`.

    Args:
        fd: the open file.
        writable: True shares what is written with the other holders; False gives a private copy,
            made page by page when it is written to.
    """
    size = os.fstat(fd).st_size
    flags = mmap.MAP_SHARED if writable else mmap.MAP_PRIVATE
    try:
        return mmap.mmap(fd, size, flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    finally:
        os.close(fd)
