"""Messages from a rank that is not trusted: taken as they come, bounded, never waited for."""

from __future__ import annotations

import json
import socket
from typing import Any

from course_lib.grade.rank.payload import LONGEST_TEXT, MOST_RAW
from course_lib.ranks.start.channel import HEADER, Channel

GROWS = 20  # bytes of memory for a byte of JSON, at most
# Of a rank's messages in a run: bytes of JSON, one answer and where it is at times; and all bytes.
MOST_TEXT = LONGEST_TEXT + (1 << 23)
MOST = MOST_RAW + MOST_TEXT


class Garbled(ValueError):
    """What came is not a message."""


class Inbox:
    """The receiving side of a channel whose other end may send anything, or half of it.

    Args:
        channel: the channel; it is still used to send.
    """

    def __init__(self, channel: Channel) -> None:
        self._sock = socket.socket(fileno=socket.dup(channel.fileno()))
        self._data = bytearray()
        self._said = self._read = 0  # bytes that have come, and those of JSON that were read
        self.closed = False

    @property
    def weight(self) -> int:
        """About the bytes of memory that what has come takes, once it has been read."""
        return self._said + GROWS * self._read

    def take(self) -> list[tuple[dict[str, Any], bytes]]:
        """The messages that are complete by now, without waiting.

        Raises:
            Garbled: the bytes are no message, or more than a rank has to say.
        """
        while not self.closed and self._said <= MOST:
            try:
                piece = self._sock.recv(1 << 20, socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            except OSError:
                piece = b""
            self.closed = not piece
            self._data += piece
            self._said += len(piece)
        found = []
        while (message := self._next()) is not None:
            found.append(message)
        if self._said > MOST:
            raise Garbled(f"more than {MOST >> 20} MiB of messages")
        return found

    def _next(self) -> tuple[dict[str, Any], bytes] | None:
        if len(self._data) < HEADER.size:
            return None
        text, raw = HEADER.unpack_from(self._data)
        end = HEADER.size + text + raw
        if end > MOST or self._read + text > MOST_TEXT:
            raise Garbled(f"a message of {end} bytes, after {self._read} of others")
        if len(self._data) < end:
            return None
        self._read += text
        with memoryview(self._data) as whole:
            words = bytes(whole[HEADER.size : HEADER.size + text])
            body = bytes(whole[HEADER.size + text : end])
        del self._data[:end]
        try:
            message = json.loads(words)
        except (ValueError, RecursionError):
            raise Garbled("a message that is not JSON") from None
        if not isinstance(message, dict):
            raise Garbled("a message that is not an object")
        return message, body

    def close(self) -> None:
        """Closes this side."""
        self._sock.close()
