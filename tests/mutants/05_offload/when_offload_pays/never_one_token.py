"""mutant: are too many"""

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
    def share(tokens: int) -> float:
        alone = step_seconds(parameters, tokens, "device", **machine)
        return alone / step_seconds(parameters, tokens, where, **machine)

    high = 2
    while share(high) < efficiency:
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if share(middle) >= efficiency else (middle, high)
    return high
