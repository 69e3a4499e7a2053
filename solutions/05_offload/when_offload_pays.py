"""When offload pays: what the link, the host and the disk add to a step, and which batch hides it.

Notebook 05. Offload costs the same in each step, however many tokens the step has: some bytes per
parameter over the link, one update on the host's processor, and, if the state is on a disk, reading
and writing it. The computation grows with the tokens. So offload pays if a step is long.

A step of `tokens` tokens, of a model with `parameters` parameters in 16 bits, takes

- forward: 2 operations for each parameter and token; backward: 4;
- with the state on the `device`: nothing more (the update takes almost no time there);
- with the state on the `host`: the gradients, 2 bytes per parameter, go down during backward, and
  the update begins when backward has ended and all gradients are down. The update takes 1/`update`
  seconds per parameter. The new parameters, 2 bytes each, go up during the update, each piece as
  soon as it is updated: of the two times, only the longer counts;
- with the state on the `disk`: the same; besides, during the update, the state is read, 12 bytes
  per parameter, and as many bytes are written. The disk does one of the two at a time. All this
  runs at the same time as the update and the copy up: of the three times, only the longest counts.

Rules: use plain Python, in double precision.
"""


def step_seconds(
    parameters: float,
    tokens: float,
    where: str,
    *,
    flops: float,
    link: float,
    update: float,
    read: float,
    write: float,
) -> float:
    """The seconds that a step takes.

    Args:
        parameters: number of parameters of the model.
        tokens: number of tokens in a step.
        where: where the optimizer's state is: `device`, `host` or `disk`.
        flops: operations per second that the device reaches.
        link: bytes per second, in each direction.
        update: parameters per second that the host updates.
        read: bytes per second from the disk.
        write: bytes per second to the disk.
    """
    # BEGIN SOLUTION: the step
    forward, backward = 2 * parameters * tokens / flops, 4 * parameters * tokens / flops
    if where == "device":  # mutate: same
        return forward + backward
    way = 2 * parameters / link
    after = max(parameters / update, way)
    if where == "disk":
        after = max(after, 12 * parameters / read + 12 * parameters / write)
    return forward + max(backward, way) + after
    # END SOLUTION


def tokens_for(efficiency: float, parameters: float, where: str, **machine: float) -> int:
    """The fewest tokens in a step with which the device computes for this share of the time.

    Args:
        efficiency: the share that must be reached, above 0 and below 1: the seconds of a step with
            the state on the `device`, divided by those with the state at `where`.
        parameters: number of parameters of the model.
        where: `host` or `disk`.
        machine: flops, link, update, read, write, as in `step_seconds`.

    Returns:
        A whole number, at least 1.
    """
    # BEGIN SOLUTION: the tokens

    def share(tokens: int) -> float:  # mutate: same
        alone = step_seconds(parameters, tokens, "device", **machine)
        return alone / step_seconds(parameters, tokens, where, **machine)

    high = 1
    while share(high) < efficiency:  # mutate: same
        high *= 2
    low = high // 2  # not enough, or 0  # mutate: same
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if share(middle) >= efficiency else (middle, high)
    return high
    # END SOLUTION
