"""variant: what the library has"""

from course_lib.trace import AlphaBeta, fit
from course_lib.trace import bus_bandwidth as bandwidth


def alpha_beta_fit(sizes, times):
    link = fit(sizes, times)
    return link.alpha, link.beta


def predict(op, payload, size, alpha, beta):
    return AlphaBeta(alpha, beta).seconds(op, payload, size)


def bus_bandwidth(op, payload, size, seconds):
    return bandwidth(op, payload, size, seconds) / 1e9
