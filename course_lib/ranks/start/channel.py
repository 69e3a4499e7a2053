"""Messages between two processes of one machine: a JSON header, raw bytes, and open files."""

from __future__ import annotations

import json
import mmap
import os
import socket
import struct
import tempfile
from typing import Any

HEADER = struct.Struct("!II")  # bytes of the JSON part, bytes of the raw part
MAX_FDS = 16


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

    def send(self, message: dict[str, Any], raw: bytes = b"", fds: tuple[int, ...] = ()) -> None:
        """Sends one message.

        Raises:
            ChannelClosed: the other side is gone.
        """
        text = json.dumps(message).encode()
        data = HEADER.pack(len(text), len(raw)) + text + raw
        try:
            if fds:
                sent = socket.send_fds(self._sock, [data], list(fds))
                data = data[sent:]
            self._sock.sendall(data)
        except (BrokenPipeError, ConnectionResetError, OSError) as error:
            raise ChannelClosed(str(error)) from None

    def receive(self, timeout: float | None = None) -> tuple[dict[str, Any], bytes, list[int]]:
        """Receives one message: the JSON part, the raw part and the open files that came along.

        Args:
            timeout: seconds to wait for the beginning of a message; 0 only looks whether there is
                one, None waits for ever.

        Raises:
            ChannelClosed: the other side has closed or is gone.
            TimeoutError: nothing came in time.
        """
        self._sock.settimeout(timeout)
        try:
            while len(self._begun) < HEADER.size:
                self._read(HEADER.size)
                self._sock.settimeout(None)
            text, raw = HEADER.unpack_from(self._begun)
            while len(self._begun) < HEADER.size + text + raw:
                self._read(HEADER.size + text + raw)
        except BlockingIOError:
            raise TimeoutError("nothing came") from None
        except ConnectionResetError as error:
            raise ChannelClosed(str(error)) from None
        finally:
            if self._sock.fileno() >= 0:
                self._sock.settimeout(None)
        data, files = self._begun, self._files
        self._begun, self._files = bytearray(), []
        middle = HEADER.size + text
        return json.loads(data[HEADER.size : middle]), bytes(memoryview(data)[middle:]), files

    def _read(self, size: int) -> None:
        """Takes the next bytes of a message that has `size` of them.

        What has come stays with the channel, so that an interrupt loses nothing of it.
        """
        most = min(size - len(self._begun), 1 << 20)
        if self._begun:
            piece = self._sock.recv(most)
        else:
            piece, files, _, _ = socket.recv_fds(self._sock, most, MAX_FDS)
            self._files += files
        if not piece:
            raise ChannelClosed("closed in the middle of a message" if self._begun else "closed")
        self._begun += piece

    def close(self) -> None:
        """Closes this end; the other end's next `receive` raises ChannelClosed.

        So are the files of a message that never came whole.
        """
        while self._files:
            os.close(self._files.pop())
        self._sock.close()


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
