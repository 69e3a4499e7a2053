"""Wrong and right answers to `newton_schulz`: see `course dev show newton_schulz`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("not_divided", ["not divided by its norm"], '''
-    x = matrix / matrix.norm().clamp(min=1e-7)
+    x = matrix
'''),
    Wrong("spectral_norm", ["divided by the largest singular value"], '''
-    x = matrix / matrix.norm().clamp(min=1e-7)
+    x = matrix / torch.linalg.matrix_norm(matrix, 2).clamp(min=1e-7)
'''),
    Wrong("cubic", ["those of the cubic iteration"], '''
-    a, b, c = COEFFICIENTS
+    a, b, c = 1.5, -0.5, 0.0
'''),
    Wrong("gram_not_squared", ["A is used in place of A·A"], '''
-        x = a * x + (b * gram + c * gram @ gram) @ x
+        x = a * x + (b * gram + c * gram) @ x
'''),
    Wrong("a_step_less", ["a step is missing"], '''
-    for _ in range(steps):
+    for _ in range(1, steps):
'''),
    Wrong("never_transposed", ["this is the Gram matrix of the longer side"], '''
-    tall = x.shape[0] > x.shape[1]
+    tall = False
'''),
    Wrong("not_transposed_back", ["not transposed back"], '''
-    return x.T if tall else x
+    return x
'''),
    Wrong("zero_by_zero", ["divide by at least 1e-7"], '''
-    x = matrix / matrix.norm().clamp(min=1e-7)
+    x = matrix / matrix.norm()
'''),
    Wrong("larger_least_norm", ["a small norm", "divide by the norm, or by 1e-7"], '''
-    x = matrix / matrix.norm().clamp(min=1e-7)
+    x = matrix / matrix.norm().clamp(min=1e-6)
'''),
    Wrong("small_becomes_zero", ["it does not become zeros"], '''
-    x = matrix / matrix.norm().clamp(min=1e-7)
+    x = matrix / matrix.norm().clamp(min=1e-7) * (matrix.norm() >= 1e-7)
'''),
    Wrong("added_to_the_norm", ["1e-7 was added to the norm"], '''
-    x = matrix / matrix.norm().clamp(min=1e-7)
+    x = matrix / (matrix.norm() + 1e-7)
'''),
    Wrong("in_float64", ["every step must compute in the matrix's own dtype"], '''
-    x = matrix / matrix.norm().clamp(min=1e-7)
+    x = (matrix / matrix.norm().clamp(min=1e-7)).double()
@@
-    return x.T if tall else x
+    return (x.T if tall else x).to(matrix.dtype)
'''),
    Wrong("in_place", ["the matrix that was given has changed"], '''
-    x = matrix / matrix.norm().clamp(min=1e-7)
+    x = matrix.div_(matrix.norm().clamp(min=1e-7))
'''),
    Wrong("by_svd", ["singular values are exactly 1"], '''
-    a, b, c = COEFFICIENTS
-    x = matrix / matrix.norm().clamp(min=1e-7)
+    u, _, v = torch.linalg.svd(matrix, full_matrices=False)
+    return u @ v
+    a, b, c = COEFFICIENTS
+    x = matrix / matrix.norm().clamp(min=1e-7)
'''),
]

RIGHT = [
    Right("variant_norm_as_a_product", "the squared norm is a product, whose operations torch counts", '''
import torch


def newton_schulz(matrix: torch.Tensor, steps: int = 5) -> torch.Tensor:
    """Makes a matrix nearly orthogonal."""
    x = matrix / torch.einsum("rc,rc->", matrix, matrix).sqrt().clamp(min=1e-7)
    x = x.mT if (tall := len(matrix) > matrix.shape[1]) else x
    for _ in range(steps):
        gram = x @ x.mT
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * (gram @ gram)) @ x
    return x.mT if tall else x
'''),
    Right("variant_two_branches", "a tall matrix is multiplied from the right, not transposed", '''
import torch


def newton_schulz(matrix: torch.Tensor, steps: int = 5) -> torch.Tensor:
    """Makes a matrix nearly orthogonal."""
    rows, columns = matrix.shape
    x = matrix / max(float(matrix.square().sum().sqrt()), 1e-7)
    for _ in range(steps):
        if rows <= columns:
            gram = x @ x.mT
            x = 3.4445 * x + (-4.7750 * gram + 2.0315 * (gram @ gram)) @ x
        else:
            gram = x.mT @ x
            x = 3.4445 * x + x @ (-4.7750 * gram + 2.0315 * (gram @ gram))
    return x
'''),
    Right("variant_fused", "addmm for the polynomial and for the step", '''
import torch


def newton_schulz(matrix: torch.Tensor, steps: int = 5) -> torch.Tensor:
    """Makes a matrix nearly orthogonal."""
    x = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(steps):
        gram = x @ x.T
        inner = torch.addmm(gram, gram, gram, beta=-4.7750, alpha=2.0315)
        x = torch.addmm(x, inner, x, beta=3.4445)
    return x.T if matrix.shape[0] > matrix.shape[1] else x
'''),
    Right("variant_recursive", "a function of a step that calls itself, and powers by Horner", '''
import torch


def newton_schulz(matrix: torch.Tensor, steps: int = 5) -> torch.Tensor:
    if matrix.shape[0] > matrix.shape[1]:
        return newton_schulz(matrix.mT, steps).mT
    return _iterate(matrix / torch.clamp(torch.linalg.norm(matrix), min=1e-7), steps)


def _iterate(x, left):
    if left == 0:
        return x
    gram = torch.einsum("ik,jk->ij", x, x)
    inner = -4.7750 * gram + 2.0315 * torch.einsum("ij,jk->ik", gram, gram)
    return _iterate(3.4445 * x + inner @ x, left - 1)
'''),
]
