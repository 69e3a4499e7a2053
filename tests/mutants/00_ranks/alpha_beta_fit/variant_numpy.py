"""variant: numpy, weights for polyfit, bit lengths"""

import numpy as np


def alpha_beta_fit(sizes, times):
    beta, alpha = np.polyfit(np.array(sizes, float), np.array(times), 1, w=1 / np.array(times))
    return (alpha if alpha > 0 else 0.0), beta


def predict(op, payload, size, alpha, beta):
    if op == "send":
        return alpha + beta * payload
    if op == "broadcast":
        return (size - 1).bit_length() * (alpha + beta * payload)
    walks = 2 if op == "all_reduce" else 1
    return walks * (size - 1) * (alpha + beta * payload / size)


def bus_bandwidth(op, payload, size, seconds):
    carried = predict(op, payload, size, alpha=0.0, beta=1.0)
    return carried / seconds / 1e9
