"""mutant: the line t = α + β·S goes through all points"""

import math

import torch


def alpha_beta_fit(sizes, times):
    size = torch.tensor(sizes, dtype=torch.float64).log()
    time = torch.tensor(times, dtype=torch.float64).log()
    rows = torch.stack([torch.ones_like(size), size], dim=1)
    alpha, beta = torch.linalg.lstsq(rows, time.unsqueeze(1)).solution.flatten().exp().tolist()
    return alpha, beta


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
    carried = predict(op, payload, size, alpha=0.0, beta=1.0)
    return carried / seconds / 1e9
