"""mutant: α and β are not the best, least squares of the relative errors"""

import math

import torch


def alpha_beta_fit(sizes, times):
    (s0, t0), *_, (s1, t1) = sorted(zip(sizes, times))
    beta = (t1 - t0) / (s1 - s0)
    return max(t0 - beta * s0, 0.0), beta


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
