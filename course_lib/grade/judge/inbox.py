"""Messages from a rank that is not trusted: taken as they come, bounded, never waited for."""

from __future__ import annotations

import json
import socket
from typing import Any

from course_lib.grade.rank.payload import LONGEST_TEXT
from course_lib.ranks.start.channel import HEADER, Channel

MOST = 1 << 29  # bytes of one message


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
        self.closed = False

    def take(self) -> list[tuple[dict[str, Any], bytes]]:
        """The messages that are complete by now, without waiting.

        Raises:
            Garbled: the bytes are no message, or one that is too long.
        """
        while not self.closed:
            try:
                piece = self._sock.recv(1 << 20, socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            except OSError:
                piece = b""
            self.closed = not piece
            self._data += piece
        found = []
        while (message := self._next()) is not None:
            found.append(message)
        return found

    def _next(self) -> tuple[dict[str, Any], bytes] | None:
        if len(self._data) < HEADER.size:
            return None
        text, raw = HEADER.unpack_from(self._data)
        end = HEADER.size + text + raw
        if end > MOST or text > LONGEST_TEXT:
            raise Garbled(f"a message of {end} bytes")
        if len(self._data) < end:
            return None
        body = bytes(self._data[HEADER.size : end])
        del self._data[:end]
        try:
            message = json.loads(body[:text])
        except (ValueError, RecursionError):
            raise Garbled("a message that is not JSON") from None
        if not isinstance(message, dict):
            raise Garbled("a message that is not an object")
        return message, body[text:]

    def close(self) -> None:
        """Closes this side."""
        self._sock.close()
