"""mutant: the factor 2 is missing"""

import math

import torch


def alpha_beta_fit(sizes, times):
    size = torch.tensor(sizes, dtype=torch.float64)
    time = torch.tensor(times, dtype=torch.float64)
    rows = torch.stack([1 / time, size / time], dim=1)
    answer = torch.linalg.lstsq(rows, torch.ones_like(time).unsqueeze(1)).solution
    alpha, beta = answer.flatten().tolist()
    return max(alpha, 0.0), beta


def predict(op, payload, size, alpha, beta):
    rounds, steps = math.ceil(math.log2(size)), size - 1
    messages, crossings = {
        "send": (1, 1),
        "broadcast": (rounds, rounds),
        "reduce_scatter": (steps, steps / size),
        "all_gather": (steps, steps / size),
        "all_reduce": (2 * steps, 2 * steps / size),
        "all_to_all": (steps, steps / size),
    }[op]
    return messages * alpha + crossings * payload * beta


def bus_bandwidth(op, payload, size, seconds):
    carried = payload if op == "send" else (size - 1) / size * payload
    return carried / seconds / 1e9
