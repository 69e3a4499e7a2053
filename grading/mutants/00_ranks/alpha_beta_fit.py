"""Wrong and right answers to `alpha_beta_fit`: see `course dev show alpha_beta_fit`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("single_precision", ["not computed in double precision"], '''
-    size = torch.tensor(sizes, dtype=torch.float64)
-    time = torch.tensor(times, dtype=torch.float64)
+    size = torch.tensor(sizes, dtype=torch.float32)
+    time = torch.tensor(times, dtype=torch.float32)
'''),
    Wrong("beta_fitted_again", ["beside the negative α"], '''
-    return max(alpha, 0.0), beta
+    if alpha < 0:
+        alpha, beta = 0.0, float((size / time).sum() / (size / time).square().sum())
+    return alpha, beta
'''),
    Wrong("absolute_least_squares", ["absolute errors"], '''
-    rows = torch.stack([1 / time, size / time], dim=1)  # of (α + β·S) / t = 1
-    answer = torch.linalg.lstsq(rows, torch.ones_like(time).unsqueeze(1)).solution
+    rows = torch.stack([torch.ones_like(size), size], dim=1)
+    answer = torch.linalg.lstsq(rows, time.unsqueeze(1)).solution
'''),
    Wrong("algorithm_bandwidth", ["this is the algorithm bandwidth"], '''
-    carried = predict(op, payload, size, alpha=0.0, beta=1.0)
-    return carried / seconds / 1e9
+    return payload / seconds / 1e9
'''),
    Wrong("algorithm_bandwidth_in_gib", ["algorithm bandwidth", "GiB instead of GB"], '''
-    carried = predict(op, payload, size, alpha=0.0, beta=1.0)
-    return carried / seconds / 1e9
+    return payload / seconds / 2**30
'''),
    Wrong("alpha_and_beta_swapped", ["α and β are swapped"], '''
-    return max(alpha, 0.0), beta
+    return beta, max(alpha, 0.0)
'''),
    Wrong("bits_for_bytes", ["bits instead of bytes"], '''
-    return messages * alpha + crossings * payload * beta
+    return messages * alpha + crossings * payload * 8 * beta
'''),
    Wrong("bus_without_factor_two", ["the factor 2 is missing"], '''
-    carried = predict(op, payload, size, alpha=0.0, beta=1.0)
+    carried = payload if op == "send" else (size - 1) / size * payload
'''),
    Wrong("bytes_per_second", ["bytes per second"], '''
-    return carried / seconds / 1e9
+    return carried / seconds
'''),
    Wrong("factor_two_forgotten", ["the factor 2 is missing"], '''
-        "all_reduce": (2 * steps, 2 * steps / size),
+        "all_reduce": (steps, steps / size),
'''),
    Wrong("fits_logarithms", ["the line t = α + β·S goes through all points"], '''
-    size = torch.tensor(sizes, dtype=torch.float64)
-    time = torch.tensor(times, dtype=torch.float64)
-    rows = torch.stack([1 / time, size / time], dim=1)  # of (α + β·S) / t = 1
-    answer = torch.linalg.lstsq(rows, torch.ones_like(time).unsqueeze(1)).solution
-    alpha, beta = answer.flatten().tolist()
-    return max(alpha, 0.0), beta
+    size = torch.tensor(sizes, dtype=torch.float64).log()
+    time = torch.tensor(times, dtype=torch.float64).log()
+    rows = torch.stack([torch.ones_like(size), size], dim=1)
+    alpha, beta = torch.linalg.lstsq(rows, time.unsqueeze(1)).solution.flatten().exp().tolist()
+    return alpha, beta
'''),
    Wrong("full_tensor_every_step", ["not all of S"], '''
-        "reduce_scatter": (steps, steps / size),
-        "all_gather": (steps, steps / size),
-        "all_reduce": (2 * steps, 2 * steps / size),
-        "all_to_all": (steps, steps / size),
+        "reduce_scatter": (steps, steps),
+        "all_gather": (steps, steps),
+        "all_reduce": (2 * steps, 2 * steps),
+        "all_to_all": (steps, steps),
'''),
    Wrong("gib_for_gb", ["GiB instead of GB"], '''
-    return carried / seconds / 1e9
+    return carried / seconds / 2**30
'''),
    Wrong("gigabits", ["bits instead of bytes"], '''
-    return carried / seconds / 1e9
+    return 8 * carried / seconds / 1e9
'''),
    Wrong("line_through_two_points", ["α and β are not the best", "least squares of the relative errors"], '''
-    size = torch.tensor(sizes, dtype=torch.float64)
-    time = torch.tensor(times, dtype=torch.float64)
-    rows = torch.stack([1 / time, size / time], dim=1)  # of (α + β·S) / t = 1
-    answer = torch.linalg.lstsq(rows, torch.ones_like(time).unsqueeze(1)).solution
-    alpha, beta = answer.flatten().tolist()
-    return max(alpha, 0.0), beta
+    (s0, t0), *_, (s1, t1) = sorted(zip(sizes, times))
+    beta = (t1 - t0) / (s1 - s0)
+    return max(t0 - beta * s0, 0.0), beta
'''),
    Wrong("log_not_rounded", ["must be rounded up"], '''
-    rounds, steps = math.ceil(math.log2(size)), size - 1
+    rounds, steps = math.log2(size), size - 1
'''),
    Wrong("log_rounded_down", ["rounded down"], '''
-    rounds, steps = math.ceil(math.log2(size)), size - 1
+    rounds, steps = int(math.log2(size)), size - 1
'''),
    Wrong("n_for_n_minus_1", ["N instead of N-1"], '''
-    rounds, steps = math.ceil(math.log2(size)), size - 1
+    rounds, steps = math.ceil(math.log2(size)), size
'''),
    Wrong("n_messages", ["N instead of N-1 in the number of messages"], '''
-        "reduce_scatter": (steps, steps / size),
+        "reduce_scatter": (size, steps / size),
@@
-        "all_reduce": (2 * steps, 2 * steps / size),
+        "all_reduce": (2 * size, 2 * steps / size),
'''),
    Wrong("natural_log", ["natural logarithm"], '''
-    rounds, steps = math.ceil(math.log2(size)), size - 1
+    rounds, steps = math.ceil(math.log(size)), size - 1
'''),
    Wrong("negative_alpha", ["return 0.0 for it"], '''
-    return max(alpha, 0.0), beta
+    return alpha, beta
'''),
    Wrong("one_alpha", ["only one α"], '''
-        "reduce_scatter": (steps, steps / size),
-        "all_gather": (steps, steps / size),
+        "reduce_scatter": (0, steps / size),
+        "all_gather": (0, steps / size),
@@
-        "all_to_all": (steps, steps / size),
+        "all_to_all": (0, steps / size),
@@
-    return messages * alpha + crossings * payload * beta
+    return alpha + crossings * payload * beta
'''),
    Wrong("predict_swapped", ["α and β are swapped"], '''
-    return messages * alpha + crossings * payload * beta
+    return messages * beta + crossings * payload * alpha
'''),
    Wrong("returns_the_bandwidth", ["this is the bandwidth"], '''
-    return max(alpha, 0.0), beta
+    return max(alpha, 0.0), 1 / beta
'''),
    Wrong("root_sends_to_all", ["the root sends to one rank after another"], '''
-        "broadcast": (rounds, rounds),
+        "broadcast": (steps, steps),
'''),
    Wrong("sorted_sizes_only", ["α and β are not the best for these times"], '''
     """
+    sizes = sorted(sizes)
     # BEGIN SOLUTION: the fit
'''),
    Wrong("weight_one_over_t", ["each squared error was divided by t"], '''
-    rows = torch.stack([1 / time, size / time], dim=1)  # of (α + β·S) / t = 1
-    answer = torch.linalg.lstsq(rows, torch.ones_like(time).unsqueeze(1)).solution
+    root = time.sqrt()
+    rows = torch.stack([1 / root, size / root], dim=1)
+    answer = torch.linalg.lstsq(rows, root.unsqueeze(1)).solution
'''),
]

RIGHT = [
    Right("variant_normal_equations", "sums by hand, and simulated rounds", '''
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
'''),
    Right("variant_numpy", "numpy, weights for polyfit, bit lengths", '''
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
'''),
    Right("variant_centred", "means first, a line through them; loops over the steps", '''
def alpha_beta_fit(sizes, times):
    weights = [1 / time**2 for time in times]
    whole = sum(weights)
    size = sum(w * s for w, s in zip(weights, sizes)) / whole
    time = sum(w * t for w, t in zip(weights, times)) / whole
    spread = sum(w * (s - size) ** 2 for w, s in zip(weights, sizes))
    beta = sum(w * (s - size) * (t - time) for w, s, t in zip(weights, sizes, times)) / spread
    return max(time - beta * size, 0.0), beta


def parts(op, size):
    if op == "send":
        return [1.0]
    if op == "broadcast":
        return [1.0] * (size - 1).bit_length()
    steps = [1 / size] * (size - 1)
    return steps + steps if op == "all_reduce" else steps


def predict(op, payload, size, alpha, beta):
    return sum(alpha + beta * part * payload for part in parts(op, size))


def bus_bandwidth(op, payload, size, seconds):
    return payload * sum(parts(op, size)) / seconds / 1e9
'''),
]
