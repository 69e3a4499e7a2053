"""variant: sums by hand, and simulated rounds"""

def alpha_beta_fit(sizes, times):
    a = b = c = d = e = 0.0
    for s, t in zip(sizes, times):
        a, b, c = a + 1 / t**2, b + s / t**2, c + s * s / t**2
        d, e = d + 1 / t, e + s / t
    beta = (a * e - b * d) / (a * c - b * b)
    alpha = (d - b * beta) / a
    return max(0.0, alpha), beta


def predict(op, payload, size, alpha, beta):
    seconds, having = 0.0, 1
    if op == "send":
        return alpha + payload * beta
    if op == "broadcast":
        while having < size:
            having, seconds = 2 * having, seconds + alpha + payload * beta
        return seconds
    for _ in range(size - 1):
        seconds += alpha + payload / size * beta
    return 2 * seconds if op == "all_reduce" else seconds


def bus_bandwidth(op, payload, size, seconds):
    factor = {"send": 1, "all_reduce": 2 * (size - 1) / size}.get(op, (size - 1) / size)
    return factor * payload / seconds * 1e-9
