"""messages_for_a_link: cut and order gradients so that the next forward hardly waits for them.

Notebook 02. This exercise is open: it has no single right answer. Valid answers are compared by the
time of a step.

Backward computes the gradients from the last layer to the first, but the next forward needs them
from the first layer to the last. You decide which gradients, or which pieces of them, go into one
message, and in which order the messages are sent. The link carries one message at a time, in your
order:
- A message begins as soon as the message before it has ended and all gradients that have a piece in
  it are ready. It takes `latency` + bytes / `rate`.
- A gradient has arrived when the last message with a piece of it has ended.
- The next forward of layer i begins when the forward of layer i-1 has ended (for layer 0: at
  ready[0], the end of backward) and layer i's own gradient has arrived, whichever is later.

An answer is valid if
- it is a list of messages, and each message is a non-empty list of pieces (layer, bytes);
- the pieces of each layer add up to exactly its gradient's bytes, and each has at least 1 byte;
- two ranks that get the same arguments return the same answer: look at no clock, and seed every
  random generator. All cases of a check together may take 20 s of processor time.

Measured: the time at which the last layer's next forward ends, divided by a lower bound for it;
less is better. The figure is the mean over twelve fixed cases.

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
    """Plans what goes over the link.

    Args:
        ready: the time at which each layer's gradient is ready, in µs since backward began. The
            last layer's is ready first.
        forward: how long each layer's forward takes, in µs.
        sizes: bytes of each layer's gradient.
        latency: µs that each message costs, however small it is.
        rate: bytes per µs that the link carries.

    Returns:
        The messages in the order in which they are sent; layers count from 0, bytes are ints.
    """

    raise NotImplementedError("messages_for_a_link: the messages")
