"""variant: solved for the tokens"""

from math import ceil


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
    forward, backward = 2 * parameters * tokens / flops, 4 * parameters * tokens / flops
    if where == "device":
        return forward + backward
    way = 2 * parameters / link
    after = max(parameters / update, way)
    if where == "disk":
        after = max(after, 12 * parameters / read + 12 * parameters / write)
    return forward + max(backward, way) + after


def tokens_for(efficiency: float, parameters: float, where: str, **machine: float) -> int:
    per_token = 6 * parameters / machine["flops"]
    way = 2 * parameters / machine["link"]
    forward, backward = per_token / 3, per_token * 2 / 3
    after = step_seconds(parameters, 0, where, **machine) - way
    short = efficiency * (way + after) / (per_token - efficiency * forward)
    long = efficiency * after / (per_token * (1 - efficiency))
    tokens = max(1, ceil(short if short * backward < way else long) - 2)
    while per_token * tokens < efficiency * step_seconds(parameters, tokens, where, **machine):
        tokens += 1
    return tokens
