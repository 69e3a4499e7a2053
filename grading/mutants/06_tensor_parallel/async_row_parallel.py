"""Wrong and right answers to `async_row_parallel`: see `course dev show async_row_parallel`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("alone_in_one_piece", ["(1 ranks,", "the product is not cut"], '''
-        for piece in x.tensor_split(pieces):
+        for piece in x.tensor_split(pieces) if group.size > 1 else [x]:
'''),
    Wrong("all_after_the_products", ["all begin after the last product"], '''
         for piece in x.tensor_split(pieces):
             part = multiply(piece, weight)
-            works.append(all_reduce(part, group, async_op=True))
             parts.append(part)
+        works = [all_reduce(part, group, async_op=True) for part in parts]
'''),
    Wrong("waits_in_the_loop", ["each is waited for before the next product"], '''
-            works.append(all_reduce(part, group, async_op=True))
+            all_reduce(part, group, async_op=True).wait()
'''),
    Wrong("not_async", ["each is waited for before the next product"], '''
-            works.append(all_reduce(part, group, async_op=True))
+            all_reduce(part, group)
'''),
    Wrong("one_piece", ["the product is not cut"], '''
-        for piece in x.tensor_split(pieces):
+        for piece in [x]:
'''),
    Wrong("chunks", ["torch.chunk cuts differently"], '''
-        for piece in x.tensor_split(pieces):
+        for piece in x.chunk(pieces):
'''),
    Wrong("no_sum", ["this is the rank's own summand"], '''
-            works.append(all_reduce(part, group, async_op=True))
'''),
    Wrong("mean", ["this is the mean over the ranks"], '''
-            works.append(all_reduce(part, group, async_op=True))
+            works.append(all_reduce(part, group, "avg", async_op=True))
'''),
    Wrong("last_not_waited_for", ["the all-reduces never waited for"], '''
-        for work in works:
+        for work in works[:-1]:
'''),
    Wrong("wider_than_the_product", ["it was converted to a wider dtype before it was sent"], '''
-            part = multiply(piece, weight)
+            part = multiply(piece, weight).double()
@@
-        return torch.cat(parts)
+        return torch.cat(parts).to(x.dtype)
'''),
    Wrong("backward_sums", ["N times too large"], '''
         x, weight = ctx.saved_tensors
+        grad = grad.clone()
+        all_reduce(grad, ctx.group)
@@
         ctx.save_for_backward(x, weight)
+        ctx.group = group
'''),
    Wrong("weight_gradient_of_the_transpose", ["the gradient of weight"], '''
-        return grad @ weight, grad.mT @ x, None, None, None
+        return grad @ weight, (x.mT @ grad).reshape(weight.shape), None, None, None
'''),
]

RIGHT = [
    Right("variant_into_the_result", "parts are views of the result, and gradients are autograd's", '''
import torch

from course_lib.comm import all_reduce


def async_row_parallel(x, weight, pieces, multiply, group):
    works, parts = [], []
    for piece in x.tensor_split(pieces):
        parts.append(multiply(piece, weight))
        works.append(all_reduce(parts[-1].data, group, async_op=True))
    while works:
        works.pop().wait()
    return torch.cat(parts)
'''),
]
