"""Wrong and right answers to `clip_grad_norm`: see `course dev show clip_grad_norm`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("unscales_the_first_group", ["only the optimizer's first group"], '''
-    for parameter in model.parameters():
+    for parameter in optimizer.param_groups[0]["params"]:
'''),
    Wrong("needs_a_gradient", ["expects a non-empty TensorList"], '''
-    if not gradients:
-        return torch.zeros(())
'''),
    Wrong("adds_norms", ["norms do not add up"], '''
-    norm = torch.linalg.vector_norm(torch.stack(norms), norm_type)
+    norm = torch.stack(norms).sum()
'''),
    Wrong("as_if_sharded", ["norms were added up over the ranks"], '''
 from torch import nn
+from course_lib.comm import all_reduce
@@
-    norm = clip_grad_norm(model.parameters(), max_norm)
+    trained = [p for p in model.parameters() if p.grad is not None]
+    norm = torch.cat([p.grad.flatten() for p in trained]).norm() ** 2
+    all_reduce(norm, model.group)
+    norm = norm.sqrt()
+    for parameter in trained:
+        parameter.grad.mul_(min(1.0, max_norm / (float(norm) + 1e-6)))
'''),
    Wrong("another_tensor", ["gradients were replaced"], '''
-            parameter.grad.div_(scale)
+            parameter.grad = parameter.grad / scale
'''),
    Wrong("not_scaled_in_backward", ["was not multiplied by `scale`"], '''
-            (loss * scale).backward()
+            loss.backward()
@@
-            parameter.grad.div_(scale)
+            parameter.grad.mul_(scale).div_(scale)
'''),
    Wrong("before_sync", ["clipped before the synchronisation"], '''
 from torch import nn
+from course_lib.comm import all_reduce
@@
-        with nullcontext() if number == len(window) else model.no_sync():
+        with model.no_sync():
@@
     norm = clip_grad_norm(model.parameters(), max_norm)
+    for parameter in model.parameters():
+        if parameter.grad is not None:
+            all_reduce(parameter.grad, model.group, "avg")
'''),
    Wrong("changes_copies", ["the gradients were not changed"], '''
-        gradient.mul_(factor)
+        gradient = gradient * factor
'''),
    Wrong("clamps_elements", ["clipped element by element"], '''
-        gradient.mul_(factor)
+        gradient.clamp_(-max_norm, max_norm)
'''),
    Wrong("clips_after_the_step", ["not clipped"], '''
             parameter.grad.div_(scale)
+    optimizer.step()
@@
-    optimizer.step()
'''),
    Wrong("clips_past_comm", ["past course_lib.comm"], '''
     norm = clip_grad_norm(model.parameters(), max_norm)
+    torch.distributed.all_reduce(norm.clone())
'''),
    Wrong("clips_scaled_gradients", ["clipped while still scaled", "then unscaled"], '''
             (loss * scale).backward()
+    norm = clip_grad_norm(model.parameters(), max_norm)
@@
-    norm = clip_grad_norm(model.parameters(), max_norm)
'''),
    Wrong("each_by_itself", ["each gradient was clipped by itself"], '''
-    factor = min(1.0, max_norm / (float(norm) + 1e-6))
-    for gradient in gradients:
-        gradient.mul_(factor)
+    for gradient, own in zip(gradients, norms):
+        gradient.mul_(min(1.0, max_norm / (float(own) + 1e-6)))
'''),
    Wrong("forgets_none", ["NoneType"], '''
-    gradients = [p.grad for p in parameters if p.grad is not None]
+    gradients = [p.grad for p in parameters]
'''),
    Wrong("generator_used_up", ["a generator is used up"], '''
-    gradients = [p.grad for p in parameters if p.grad is not None]
-    if not gradients:
-        return torch.zeros(())
-    norms = [torch.linalg.vector_norm(gradient, norm_type) for gradient in gradients]
+    norms = [torch.linalg.vector_norm(gradient, norm_type) for gradient in (p.grad for p in parameters if p.grad is not None)]
+    if not norms:
+        return torch.zeros(())
@@
-    for gradient in gradients:
-        gradient.mul_(factor)
+    for parameter in parameters:
+        if parameter.grad is not None:
+            parameter.grad.mul_(factor)
'''),
    Wrong("lengthens", ["short gradients were made longer"], '''
-    factor = min(1.0, max_norm / (float(norm) + 1e-6))
+    factor = max_norm / (float(norm) + 1e-6)
'''),
    Wrong("local_norm", ["the norm is this rank's own"], '''
 from torch import nn
+from course_lib.comm import all_reduce
@@
-        with nullcontext() if number == len(window) else model.no_sync():
+        with model.no_sync():
@@
-    norm = clip_grad_norm(model.parameters(), max_norm)
+    trained = [p for p in model.parameters() if p.grad is not None]
+    norm = torch.cat([p.grad.flatten() for p in trained]).norm()
+    for parameter in trained:
+        all_reduce(parameter.grad, model.group, "avg")
+        parameter.grad.mul_(min(1.0, max_norm / (float(norm) + 1e-6)))
'''),
    Wrong("never_clips", ["not clipped"], '''
-    norm = clip_grad_norm(model.parameters(), max_norm)
+    norm = clip_grad_norm(model.parameters(), float("inf"))
'''),
    Wrong("never_scales", ["unscaled twice"], '''
-            (loss * scale).backward()
+            loss.backward()
'''),
    Wrong("never_synchronises", ["nothing was synchronised"], '''
-        with nullcontext() if number == len(window) else model.no_sync():
+        with model.no_sync():
'''),
    Wrong("never_unscales", ["clipped while still scaled"], '''
-    for parameter in model.parameters():
-        if parameter.grad is not None:
-            parameter.grad.div_(scale)
'''),
    Wrong("never_zeroes", ["gradients from before are still in it"], '''
-    optimizer.zero_grad()
'''),
    Wrong("zeroes_last", ["gradients from before are still in it"], '''
-    optimizer.zero_grad()
@@
     optimizer.step()
+    optimizer.zero_grad()
'''),
    Wrong("no_epsilon", ["without the 1e-6"], '''
-    factor = min(1.0, max_norm / (float(norm) + 1e-6))
+    factor = min(1.0, max_norm / (float(norm)))
'''),
    Wrong("no_mean", ["the sum over the window"], '''
-            loss = loss_fn(model(inputs), targets) / len(window)
+            loss = loss_fn(model(inputs), targets)
'''),
    Wrong("no_root", ["the root is missing"], '''
         gradient.mul_(factor)
-    return norm
+    return norm**2
'''),
    Wrong("other_tensors", ["gradients were replaced by other tensors"], '''
-    gradients = [p.grad for p in parameters if p.grad is not None]
+    parameters = [p for p in parameters if p.grad is not None]
+    gradients = [p.grad for p in parameters]
@@
-    for gradient in gradients:
-        gradient.mul_(factor)
+    for parameter in parameters:
+        parameter.grad = parameter.grad * factor
'''),
    Wrong("per_micro_batch", ["clipped in each micro-batch"], '''
-            (loss * scale).backward()
-    for parameter in model.parameters():
-        if parameter.grad is not None:
-            parameter.grad.div_(scale)
-    norm = clip_grad_norm(model.parameters(), max_norm)
+            (loss).backward()
+        norm = clip_grad_norm(model.parameters(), max_norm)
'''),
    Wrong("per_micro_batch_scaled", ["the gradients before the step"], '''
             (loss * scale).backward()
+        norm = clip_grad_norm(model.parameters(), max_norm * scale) / scale
@@
-    norm = clip_grad_norm(model.parameters(), max_norm)
'''),
    Wrong("returns_the_new_norm", ["this is the norm after clipping"], '''
         gradient.mul_(factor)
-    return norm
+    return norm * factor
'''),
    Wrong("sends_norms", ["something was sent besides"], '''
 from torch import nn
+from course_lib.comm import all_reduce
@@
             parameter.grad.div_(scale)
+    all_reduce(torch.zeros(1), model.group)
'''),
    Wrong("synchronises_every_micro_batch", ["every micro-batch was synchronised"], '''
-        with nullcontext() if number == len(window) else model.no_sync():
+        with nullcontext():
'''),
    Wrong("two_norm_always", ["this is the 2-norm"], '''
-    norms = [torch.linalg.vector_norm(gradient, norm_type) for gradient in gradients]
-    norm = torch.linalg.vector_norm(torch.stack(norms), norm_type)
+    norms = [torch.linalg.vector_norm(gradient) for gradient in gradients]
+    norm = torch.linalg.vector_norm(torch.stack(norms))
'''),
    Wrong("two_norm_of_p_norms", ["1-norm", "max_norm 0.05"], '''
-    norm = torch.linalg.vector_norm(torch.stack(norms), norm_type)
+    norm = torch.linalg.vector_norm(torch.stack(norms))
'''),
    Wrong("unscales_twice", ["unscaled twice"], '''
             parameter.grad.div_(scale)
+    for parameter in model.parameters():
+        if parameter.grad is not None:
+            parameter.grad.div_(scale)
'''),
    Wrong("torchs_own", ["what this exercise does not allow: torch.nn.utils.clip_grad_norm_"], '''
-    gradients = [p.grad for p in parameters if p.grad is not None]
-    if not gradients:
-        return torch.zeros(())
-    norms = [torch.linalg.vector_norm(gradient, norm_type) for gradient in gradients]
-    norm = torch.linalg.vector_norm(torch.stack(norms), norm_type)
-    factor = min(1.0, max_norm / (float(norm) + 1e-6))
-    for gradient in gradients:
-        gradient.mul_(factor)
-    return norm
+    return nn.utils.clip_grad_norm_(parameters, max_norm, norm_type)
'''),
]

RIGHT = [
    Right("variant_clamp", "the factor stays a tensor", '''
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext

import torch
from torch import nn


def clip_grad_norm(
    parameters: Iterable[nn.Parameter], max_norm: float, norm_type: float = 2.0
) -> torch.Tensor:
    """Makes the gradients shorter, in place, if their norm is above `max_norm`.

    Args:
        parameters: some may have no gradient.
        max_norm: the norm that is allowed for all gradients together.
        norm_type: 2.0, another p of the p-norm, or infinity for the largest absolute value.

    Returns:
        The norm before, a scalar tensor.
    """
    gradients = [p.grad for p in parameters if p.grad is not None]
    if not gradients:
        return torch.zeros(())
    norms = [torch.linalg.vector_norm(gradient, norm_type) for gradient in gradients]
    norm = torch.linalg.vector_norm(torch.stack(norms), norm_type)
    factor = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        gradient.mul_(factor)
    return norm


def update(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loss_fn: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    window: Sequence[tuple[torch.Tensor, torch.Tensor]],
    max_norm: float,
    scale: float,
) -> torch.Tensor:
    """One update: the window's micro-batches, unscale, clip, step.

    Args:
        model: averages gradients, has `no_sync()`.
        optimizer: of its parameters.
        loss_fn: outputs and targets of a micro-batch to its mean loss.
        window: (inputs, targets) of each micro-batch, all of one size.
        max_norm: the norm that is allowed.
        scale: what losses are multiplied by before their backward.

    Returns:
        The norm of the update's unscaled gradient before clipping; the same on every rank.
    """
    optimizer.zero_grad()
    for number, (inputs, targets) in enumerate(window, 1):
        with nullcontext() if number == len(window) else model.no_sync():
            loss = loss_fn(model(inputs), targets) / len(window)
            (loss * scale).backward()
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad.div_(scale)
    norm = clip_grad_norm(model.parameters(), max_norm)
    optimizer.step()
    return norm
'''),
    Right("variant_flat", "one long vector", '''
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext

import torch
from torch import nn


def clip_grad_norm(
    parameters: Iterable[nn.Parameter], max_norm: float, norm_type: float = 2.0
) -> torch.Tensor:
    """Makes the gradients shorter, in place, if their norm is above `max_norm`.

    Args:
        parameters: some may have no gradient.
        max_norm: the norm that is allowed for all gradients together.
        norm_type: 2.0, another p of the p-norm, or infinity for the largest absolute value.

    Returns:
        The norm before, a scalar tensor.
    """
    gradients = [p.grad for p in parameters if p.grad is not None]
    if not gradients:
        return torch.zeros(())
    norm = torch.cat([gradient.flatten() for gradient in gradients]).norm(norm_type)
    factor = min(1.0, max_norm / (float(norm) + 1e-6))
    for gradient in gradients:
        gradient.mul_(factor)
    return norm


def update(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loss_fn: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    window: Sequence[tuple[torch.Tensor, torch.Tensor]],
    max_norm: float,
    scale: float,
) -> torch.Tensor:
    """One update: the window's micro-batches, unscale, clip, step.

    Args:
        model: averages gradients, has `no_sync()`.
        optimizer: of its parameters.
        loss_fn: outputs and targets of a micro-batch to its mean loss.
        window: (inputs, targets) of each micro-batch, all of one size.
        max_norm: the norm that is allowed.
        scale: what losses are multiplied by before their backward.

    Returns:
        The norm of the update's unscaled gradient before clipping; the same on every rank.
    """
    optimizer.zero_grad()
    for number, (inputs, targets) in enumerate(window, 1):
        with nullcontext() if number == len(window) else model.no_sync():
            loss = loss_fn(model(inputs), targets) / len(window)
            (loss * scale).backward()
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad.div_(scale)
    norm = clip_grad_norm(model.parameters(), max_norm)
    optimizer.step()
    return norm
'''),
    Right("variant_unscales_with_the_step", "scale taken out by the limit and by one division after", '''
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext

import torch
from torch import nn


def clip_grad_norm(
    parameters: Iterable[nn.Parameter], max_norm: float, norm_type: float = 2.0
) -> torch.Tensor:
    """Makes the gradients shorter, in place, if their norm is above `max_norm`.

    Args:
        parameters: some may have no gradient.
        max_norm: the norm that is allowed for all gradients together.
        norm_type: 2.0, another p of the p-norm, or infinity for the largest absolute value.

    Returns:
        The norm before, a scalar tensor.
    """
    gradients = [p.grad for p in parameters if p.grad is not None]
    if not gradients:
        return torch.zeros(())
    norms = [torch.linalg.vector_norm(gradient, norm_type) for gradient in gradients]
    norm = torch.linalg.vector_norm(torch.stack(norms), norm_type)
    factor = min(1.0, max_norm / (float(norm) + 1e-6))
    for gradient in gradients:
        gradient.mul_(factor)
    return norm


def _unscale(parameter, scale):
    if parameter.grad is None:
        return False
    parameter.grad.mul_(1 / scale)
    return True


def update(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loss_fn: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    window: Sequence[tuple[torch.Tensor, torch.Tensor]],
    max_norm: float,
    scale: float,
) -> torch.Tensor:
    """One update: the window's micro-batches, unscale, clip, step.

    Args:
        model: averages gradients, has `no_sync()`.
        optimizer: of its parameters.
        loss_fn: outputs and targets of a micro-batch to its mean loss.
        window: (inputs, targets) of each micro-batch, all of one size.
        max_norm: the norm that is allowed.
        scale: what losses are multiplied by before their backward.

    Returns:
        The norm of the update's unscaled gradient before clipping; the same on every rank.
    """
    optimizer.zero_grad()
    for number, (inputs, targets) in enumerate(window, 1):
        with nullcontext() if number == len(window) else model.no_sync():
            loss = loss_fn(model(inputs), targets) / len(window)
            (loss * scale).backward()
    norm = clip_grad_norm([p for p in model.parameters() if _unscale(p, scale)], max_norm)
    optimizer.step()
    return norm
'''),
]
