"""Wrong and right answers to `powersgd`: see `course dev show powersgd`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("writes_over_q", ["the first Q was changed"], '''
-        self.q = own.clone()
+        self.q.copy_(own)
'''),
    Wrong("error_on_the_class", ["the mean of step 6"], '''
-        self.error: torch.Tensor | None = None
+        type(self).error = None
@@
-        self.error = matrix - p @ own.T
+        type(self).error = matrix - p @ own.T
'''),
    Wrong("divides_by_zero", ["the mean of matrices of zeros"], '''
-        p = torch.linalg.qr(p).Q
+        p = p.clone()
+        for i in range(p.shape[1]):
+            p[:, i] -= p[:, :i] @ (p[:, :i].T @ p[:, i])
+            p[:, i] /= p[:, i].norm()
'''),
    Wrong("wrong_in_float32", ["in float32"], '''
-        own = matrix.T @ p
+        own = matrix.T @ p.to(torch.bfloat16 if p.dtype == torch.float32 else p.dtype).to(p.dtype)
'''),
    Wrong("column_by_column", ["two all-reduces in each step"], '''
-        all_reduce(p, group, "avg")
+        for column in p.T:
+            all_reduce(column, group, "avg")
'''),
    Wrong("wider_wire", ["bytes sent in torch.float32", "they were sent in float64"], '''
-        all_reduce(p, group, "avg")
+        wide = p.double()
+        all_reduce(wide, group, "avg")
+        p = wide.to(p.dtype)
@@
-        all_reduce(self.q, group, "avg")
+        wide = self.q.double()
+        all_reduce(wide, group, "avg")
+        self.q = wide.to(p.dtype)
'''),
    Wrong("no_feedback", ["nothing is fed back"], '''
-        self.error = matrix - p @ own.T
+        self.error = torch.zeros_like(matrix)
'''),
    Wrong("feedback_of_the_mean", ["the error was computed from the mean"], '''
-        self.error = matrix - p @ own.T
@@
-        return p @ self.q.T
+        self.error = matrix - p @ self.q.T
+        return p @ self.q.T
'''),
    Wrong("products_are_averaged", ["or averaged the products", "whole matrices are reduced"], '''
-        all_reduce(p, group, "avg")
@@
-        self.q = own.clone()
-        all_reduce(self.q, group, "avg")
-        return p @ self.q.T
+        mean = p @ own.T
+        all_reduce(mean, group, "avg")
+        self.q = own.clone()
+        return mean
'''),
    Wrong("basis_before_the_mean", ["the mean of step 1"], '''
-        p = matrix @ self.q
-        all_reduce(p, group, "avg")
-        p = torch.linalg.qr(p).Q
+        p = torch.linalg.qr(matrix @ self.q).Q.contiguous()
+        all_reduce(p, group, "avg")
'''),
    Wrong("no_basis", ["P is not orthonormal"], '''
-        p = torch.linalg.qr(p).Q
'''),
    Wrong("cold_start", ["Q is the initial one"], '''
-        self.q = own.clone()
-        all_reduce(self.q, group, "avg")
-        return p @ self.q.T
+        q = own.clone()
+        all_reduce(q, group, "avg")
+        return p @ q.T
'''),
    Wrong("sum_of_q", ["this is the sum over the ranks", "this is the sum"], '''
-        all_reduce(self.q, group, "avg")
+        all_reduce(self.q, group)
'''),
    Wrong("q_is_not_averaged", ["Q is not averaged"], '''
-        all_reduce(self.q, group, "avg")
'''),
    Wrong("p_is_not_averaged", ["P is not averaged"], '''
-        all_reduce(p, group, "avg")
'''),
    Wrong("whole_matrices", ["whole matrices are reduced as well"], '''
-        p = matrix @ self.q
+        matrix = matrix.clone()
+        all_reduce(matrix, group, "avg")
+        p = matrix @ self.q
'''),
    Wrong("changes_the_gradient", ["the gradient was changed"], '''
-        matrix = gradient if self.error is None else gradient + self.error
+        matrix = gradient if self.error is None else gradient.add_(self.error)
'''),
    Wrong("float32_on_the_wire", ["float32"], '''
-        all_reduce(self.q, group, "avg")
+        small = self.q.float()
+        all_reduce(small, group, "avg")
+        self.q = small.double()
@@
-        all_reduce(p, group, "avg")
+        small = p.float()
+        all_reduce(small, group, "avg")
+        p = small.double()
'''),
    Wrong("error_of_the_gradient_alone", ["the mean of step 3", "the error after step 2"], '''
-        self.error = matrix - p @ own.T
+        self.error = gradient - p @ own.T
'''),
]

RIGHT = [
    Right("sums", "P needs no division, since a basis has no length; the error by a projection", '''
import torch

from course_lib.comm import Group, all_reduce


class PowerSGD:
    def __init__(self, q: torch.Tensor) -> None:
        self.q = q
        self.error: torch.Tensor | None = None

    def mean(self, gradient: torch.Tensor, group: Group) -> torch.Tensor:
        if self.error is None:
            self.error = torch.zeros_like(gradient)
        matrix = gradient + self.error
        p = matrix @ self.q
        all_reduce(p, group)
        p, _ = torch.linalg.qr(p)
        self.q = matrix.T @ p
        self.error = matrix - p @ (p.T @ matrix)
        all_reduce(self.q, group)
        self.q = self.q / group.size
        return p @ self.q.T
'''),
    Right("gram_schmidt", "its own basis, column by column", '''
import torch

from course_lib.comm import Group, all_reduce


class PowerSGD:
    def __init__(self, q: torch.Tensor) -> None:
        self.q = q
        self.error: torch.Tensor | None = None

    def mean(self, gradient: torch.Tensor, group: Group) -> torch.Tensor:
        matrix = gradient.clone()
        if self.error is not None:
            matrix += self.error
        p = matrix @ self.q
        all_reduce(p, group, "avg")
        for i in range(p.shape[1]):
            for j in range(i):
                p[:, i] -= (p[:, i] @ p[:, j]) * p[:, j]
            p[:, i] /= p[:, i].norm().clamp(min=1e-30)
        own = matrix.T @ p
        self.q = own / group.size
        all_reduce(self.q, group)
        self.error = torch.addmm(matrix, p, own.T, alpha=-1)
        return p @ self.q.T
'''),
    Right("own_ring", "the ring of lesson 01, and a basis by the singular values", '''
import torch

from course_lib.comm import Group, ring_all_reduce


class PowerSGD:
    def __init__(self, q: torch.Tensor) -> None:
        self.q = q
        self.error: torch.Tensor | None = None

    def mean(self, gradient: torch.Tensor, group: Group) -> torch.Tensor:
        matrix = gradient if self.error is None else self.error + gradient
        p = (matrix @ self.q).contiguous()
        ring_all_reduce(p.view(-1), group, "avg")
        p = torch.linalg.svd(p, full_matrices=False).U
        own = (matrix.T @ p).contiguous()
        self.error = matrix - p @ own.T
        self.q = own.clone()
        ring_all_reduce(self.q.view(-1), group, "avg")
        return p @ self.q.T
'''),
]
