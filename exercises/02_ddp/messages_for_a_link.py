"""messages_for_a_link: cut and order gradients so that the next forward hardly waits for them.

Notebook 02. Open: there is no right answer.

Backward makes gradients from the last layer to the first; the next forward needs them from the
first on. One link carries one message at a time:
- a message begins when its gradients are ready and the message before it has ended, and takes
  `latency` + bytes / `rate`;
- layer 0's next forward begins at ready[0], the end of backward, layer i's when layer i-1's ends;
  but not before its own gradient has arrived.

Valid is a list of messages, each a list of (layer, bytes):
- all bytes of each gradient, in pieces of at least 1;
- the same on two ranks: no clock, seeded generators; 20 s of processor time in all.

Measured: the end of the last forward over a lower bound; the mean of twelve fixed cases.

Your answer may use nothing of `course_lib`.
"""

from collections.abc import Iterator, Sequence

Message = list[tuple[int, int]]  # pieces: (layer, bytes)


def messages_for_a_link(
    ready: Sequence[int],
    forward: Sequence[int],
    sizes: Sequence[int],
    latency: int,
    rate: int,
) -> list[Message]:
    """What goes over the link, message after message.

    Args:
        ready: when each layer's gradient is there, in µs from the begin of backward; the last
            layer's is there first.
        forward: how long each layer's forward takes, in µs.
        sizes: bytes of each gradient.
        latency: µs of a message.
        rate: bytes in a µs.
    """

    raise NotImplementedError("messages_for_a_link: the messages")
