"""When offload pays: what the link, the host and the disk add to a step, and which batch hides it.

Notebook 05. Offload costs the same in each step, however many tokens the step has: so many bytes a
parameter over the link, one update on the host's processor, and if the state is on a disk, its
bytes there and back. The computation grows with the tokens. So offload pays where a step is long.

The model: a step of `tokens` tokens of a model with `parameters` parameters, in 16 bits, takes

- forward: 2 operations for each parameter and token; backward: 4;
- on the `device`: nothing more (the update there takes next to no time);
- on the `host`: the gradients, 2 bytes a parameter, go down during backward, and the update can
  begin when backward has ended and all are down. The update takes 1/`update` seconds a parameter.
  The new parameters, 2 bytes each, go up beside it, each piece as soon as it is updated, so of the
  two only the longer counts;
- on the `disk`: the same, and during the update the state, 12 bytes a parameter, is read, and as
  much is written. The disk does one of them at a time. All this goes on beside the update and the
  way up: the longest of the three counts.

Rules: plain Python, in double precision.

Your answer may use nothing of `course_lib`.
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
    """How long a step takes.

    Args:
        parameters: of the model.
        tokens: in a step.
        where: `device`, `host` or `disk`: where the optimizer's state is.
        flops: operations per second that the device reaches.
        link: bytes per second, in each direction.
        update: parameters per second that the host updates.
        read: bytes per second from the disk.
        write: bytes per second to the disk.
    """
    raise NotImplementedError("when_offload_pays: the step")


def tokens_for(efficiency: float, parameters: float, where: str, **machine: float) -> int:
    """The fewest tokens a step must have, for the device to compute for this share of its time.

    Args:
        efficiency: above 0 and below 1: the seconds of `device`, divided by those of `where`.
        parameters: of the model.
        where: `host` or `disk`.
        machine: flops, link, update, read, write.

    Returns:
        A whole number, at least 1.
    """
    raise NotImplementedError("when_offload_pays: the tokens")
