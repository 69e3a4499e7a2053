"""All-reduce by halving and doubling: as few bytes as the ring, in 2·log2 N rounds.

Notebook 01. Let N be a power of two. A rank and its partner `index ^ distance` cut the tensor in
two: each sends the half that it gives away, and adds what it receives to the half that it keeps.
Each goes on with its half in the same way, with a partner at another distance, then with a quarter,
until each rank has one chunk that is summed over all ranks. Then everything runs backwards:
partners exchange the parts that are complete, one chunk, two, four, until both have the whole
tensor.

Halving sends S/2 + S/4 + ... = (N-1)/N·S bytes in log2 N rounds, and doubling the same again.

If N is not a power of two, some ranks are left over. Let 2^k be the largest power of two up to N.
Each rank with index 2^k or more sends its tensor to another rank, which adds it to its own, takes
part for both, and sends the result back: two more rounds, in which each of the two sends S bytes.

Rules: change the tensor in place; it keeps its dtype and its memory. It may have any number of
elements, so halves may differ by one, and may be non-contiguous. When the function returns, every
message has been waited for, also those that were sent. Peers are indices in the group:
`group.index`, `group.size`.
"""

import torch

from course_lib.comm import Group, exchange, recv, send


def halving_doubling_all_reduce(tensor: torch.Tensor, group: Group) -> None:
    """Sums `tensor` over the group, in place.

    Args:
        tensor: any shape; same shape and dtype on every rank.
        group: the ranks; any number.
    """
    # BEGIN SOLUTION
    data = tensor.contiguous().view(-1)
    power = 1 << (group.size.bit_length() - 1)  # the largest power of two in N

    def reduce(part: torch.Tensor, distance: int) -> None:
        """Sums `part` over the members whose indices differ from this one's below 2·distance."""
        if distance == 0:
            return
        partner = group.index ^ distance
        low, high = part.tensor_split(2)
        kept, given = (low, high) if group.index < partner else (high, low)
        incoming = torch.empty_like(kept)
        exchange(given, partner, incoming, partner, group)
        kept += incoming
        reduce(kept, distance // 2)
        exchange(kept, partner, given, partner, group)

    if group.index >= power:
        send(data, group.index - power, group)
        recv(data, group.index - power, group)
    else:
        speaks_for = group.index + power
        if speaks_for < group.size:
            incoming = torch.empty_like(data)
            recv(incoming, speaks_for, group)
            data += incoming
        reduce(data, power // 2)
        if speaks_for < group.size:
            send(data, speaks_for, group)
    tensor.copy_(data.view(tensor.shape))
    # END SOLUTION
