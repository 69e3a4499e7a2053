"""Wrong and right answers to `offloaded_adam`: see `course dev show offloaded_adam`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("updates_what_is_frozen", ["the frozen vector has changed", "leave it alone"], '''
-            if p.requires_grad:
+            if p.is_leaf:
'''),
    Wrong("float16_has_no_master", ["in float16 after 4 steps", "small updates are lost in 16 bits"], '''
-                wide = torch.promote_types(p.dtype, torch.float32)
+                wide = torch.float32 if p.dtype == torch.bfloat16 else p.dtype
'''),
    Wrong("one_dtype_for_all", ["in float64 after 4 steps", "float32's rounding"], '''
-        self.pairs = []
+        parameters = list(parameters)
+        wide = torch.promote_types(parameters[0].dtype, torch.float32)
+        self.pairs = []
@@
-                wide = torch.promote_types(p.dtype, torch.float32)
'''),
    Wrong("needs_all_options", ["KeyError"], '''
-        self.inner = torch.optim.AdamW([master for _, master in self.pairs], **options)
+        every = {name: options[name] for name in ("lr", "betas", "eps", "weight_decay")}
+        self.inner = torch.optim.AdamW([master for _, master in self.pairs], **every)
'''),
    Wrong("no_rate_of_its_own", ["after 4 steps"], '''
-        self.inner = torch.optim.AdamW([master for _, master in self.pairs], **options)
+        options["lr"] = 1e-3
+        self.inner = torch.optim.AdamW([master for _, master in self.pairs], **options)
''', "the rate of the first step is that of the options"),
    Wrong("casts_on_the_device", ["a link moves bytes"], '''
-        self.pairs = []
-        for p in parameters:
-            if p.requires_grad:
-                wide = torch.promote_types(p.dtype, torch.float32)
-                self.pairs.append((p, link.down(p).to(wide).requires_grad_()))
-        self.inner = torch.optim.AdamW([master for _, master in self.pairs], **options)
+        self.parameters = [p for p in parameters if p.requires_grad]
+        self.masters = []
+        for p in self.parameters:
+            wide = torch.promote_types(p.dtype, torch.float32)
+            self.masters.append(link.down(p.detach()).to(wide).requires_grad_())
+        self.inner = torch.optim.AdamW(self.masters, **options)
@@
         # BEGIN SOLUTION: down, update, up
-        for p, master in self.pairs:
+        for p, master in zip(self.parameters, self.masters):
@@
         self.inner.step()
-        for p, master in self.pairs:
+        for p, master in zip(self.parameters, self.masters):
@@
-                self.link.up(master.to(p.dtype), p)
+                self.link.up(master.detach(), p)
@@
-        for p, _ in self.pairs:
+        for p in self.parameters:
'''),
    Wrong("everything_up", ["a parameter without a gradient is copied"], '''
-        self.pairs = []
-        for p in parameters:
-            if p.requires_grad:
-                wide = torch.promote_types(p.dtype, torch.float32)
-                self.pairs.append((p, link.down(p).to(wide).requires_grad_()))
-        self.inner = torch.optim.AdamW([master for _, master in self.pairs], **options)
+        self.parameters = [p for p in parameters if p.requires_grad]
+        self.masters = []
+        for p in self.parameters:
+            wide = torch.promote_types(p.dtype, torch.float32)
+            self.masters.append(link.down(p.detach()).to(wide).requires_grad_())
+        self.inner = torch.optim.AdamW(self.masters, **options)
@@
         # BEGIN SOLUTION: down, update, up
-        for p, master in self.pairs:
+        for p, master in zip(self.parameters, self.masters):
@@
-        for p, master in self.pairs:
-            if p.grad is not None:
-                self.link.up(master.to(p.dtype), p)
+        for p, master in zip(self.parameters, self.masters):
+            if True:
+                self.link.up(master.detach().to(p.dtype), p)
@@
-        for p, _ in self.pairs:
+        for p in self.parameters:
'''),
    Wrong("forgets_zero_grad", ["has the wrong value"], '''
-        self.pairs = []
-        for p in parameters:
-            if p.requires_grad:
-                wide = torch.promote_types(p.dtype, torch.float32)
-                self.pairs.append((p, link.down(p).to(wide).requires_grad_()))
-        self.inner = torch.optim.AdamW([master for _, master in self.pairs], **options)
+        self.parameters = [p for p in parameters if p.requires_grad]
+        self.masters = []
+        for p in self.parameters:
+            wide = torch.promote_types(p.dtype, torch.float32)
+            self.masters.append(link.down(p.detach()).to(wide).requires_grad_())
+        self.inner = torch.optim.AdamW(self.masters, **options)
@@
         # BEGIN SOLUTION: down, update, up
-        for p, master in self.pairs:
+        for p, master in zip(self.parameters, self.masters):
@@
         self.inner.step()
-        for p, master in self.pairs:
+        for p, master in zip(self.parameters, self.masters):
@@
-                self.link.up(master.to(p.dtype), p)
+                self.link.up(master.detach().to(p.dtype), p)
@@
-        for p, _ in self.pairs:
-            p.grad = None
+        for master in self.masters:
+            master.grad = None
'''),
    Wrong("frozen_too", ["bytes that went down when the optimizer was made"], '''
-        self.pairs = []
-        for p in parameters:
-            if p.requires_grad:
-                wide = torch.promote_types(p.dtype, torch.float32)
-                self.pairs.append((p, link.down(p).to(wide).requires_grad_()))
-        self.inner = torch.optim.AdamW([master for _, master in self.pairs], **options)
+        self.parameters = list(parameters)
+        self.masters = []
+        for p in self.parameters:
+            wide = torch.promote_types(p.dtype, torch.float32)
+            self.masters.append((link.down(p.detach()) + 0 * link.down(p.detach())).to(wide).requires_grad_())
+        self.inner = torch.optim.AdamW(self.masters, **options)
@@
         # BEGIN SOLUTION: down, update, up
-        for p, master in self.pairs:
+        for p, master in zip(self.parameters, self.masters):
@@
         self.inner.step()
-        for p, master in self.pairs:
+        for p, master in zip(self.parameters, self.masters):
@@
-                self.link.up(master.to(p.dtype), p)
+                self.link.up(master.detach().to(p.dtype), p)
@@
-        for p, _ in self.pairs:
+        for p in self.parameters:
'''),
    Wrong("gradients_wide_on_the_link", ["float32 is copied"], '''
-        self.pairs = []
-        for p in parameters:
-            if p.requires_grad:
-                wide = torch.promote_types(p.dtype, torch.float32)
-                self.pairs.append((p, link.down(p).to(wide).requires_grad_()))
-        self.inner = torch.optim.AdamW([master for _, master in self.pairs], **options)
+        self.parameters = [p for p in parameters if p.requires_grad]
+        self.masters = []
+        for p in self.parameters:
+            wide = torch.promote_types(p.dtype, torch.float32)
+            self.masters.append(link.down(p.detach()).to(wide).requires_grad_())
+        self.inner = torch.optim.AdamW(self.masters, **options)
@@
-        for p, master in self.pairs:
-            master.grad = None if p.grad is None else self.link.down(p.grad).to(master.dtype)
+        for p, master in zip(self.parameters, self.masters):
+            master.grad = None if p.grad is None else self.link.down(p.grad.to(master.dtype))
@@
         self.inner.step()
-        for p, master in self.pairs:
+        for p, master in zip(self.parameters, self.masters):
@@
-                self.link.up(master.to(p.dtype), p)
+                self.link.up(master.detach().to(p.dtype), p)
@@
-        for p, _ in self.pairs:
+        for p in self.parameters:
'''),
    Wrong("keeps_old_gradients", ["used again"], '''
-        self.pairs = []
-        for p in parameters:
-            if p.requires_grad:
-                wide = torch.promote_types(p.dtype, torch.float32)
-                self.pairs.append((p, link.down(p).to(wide).requires_grad_()))
-        self.inner = torch.optim.AdamW([master for _, master in self.pairs], **options)
+        self.parameters = [p for p in parameters if p.requires_grad]
+        self.masters = []
+        for p in self.parameters:
+            wide = torch.promote_types(p.dtype, torch.float32)
+            self.masters.append(link.down(p.detach()).to(wide).requires_grad_())
+        self.inner = torch.optim.AdamW(self.masters, **options)
@@
-        for p, master in self.pairs:
-            master.grad = None if p.grad is None else self.link.down(p.grad).to(master.dtype)
+        for p, master in zip(self.parameters, self.masters):
+            if p.grad is not None:
+                master.grad = self.link.down(p.grad).to(master.dtype)
@@
         self.inner.step()
-        for p, master in self.pairs:
+        for p, master in zip(self.parameters, self.masters):
@@
-                self.link.up(master.to(p.dtype), p)
+                self.link.up(master.detach().to(p.dtype), p)
@@
-        for p, _ in self.pairs:
+        for p in self.parameters:
'''),
    Wrong("masters_made_anew", ["the parameters are copied down as well", "was read back from the device"], '''
-        self.pairs = []
-        for p in parameters:
-            if p.requires_grad:
-                wide = torch.promote_types(p.dtype, torch.float32)
-                self.pairs.append((p, link.down(p).to(wide).requires_grad_()))
-        self.inner = torch.optim.AdamW([master for _, master in self.pairs], **options)
+        self.parameters = [p for p in parameters if p.requires_grad]
+        self.masters = []
+        for p in self.parameters:
+            wide = torch.promote_types(p.dtype, torch.float32)
+            self.masters.append(link.down(p.detach()).to(wide).requires_grad_())
+        self.inner = torch.optim.AdamW(self.masters, **options)
@@
         # BEGIN SOLUTION: down, update, up
-        for p, master in self.pairs:
+        for p, master in zip(self.parameters, self.masters):
@@
             master.grad = None if p.grad is None else self.link.down(p.grad).to(master.dtype)
+            if p.grad is not None:
+                master.data = self.link.down(p.detach()).to(master.dtype)
@@
         self.inner.step()
-        for p, master in self.pairs:
+        for p, master in zip(self.parameters, self.masters):
@@
-                self.link.up(master.to(p.dtype), p)
+                self.link.up(master.detach().to(p.dtype), p)
@@
-        for p, _ in self.pairs:
+        for p in self.parameters:
'''),
    Wrong("mixes_devices", ["was given a tensor on the device and one on the host"], '''
-        self.pairs = []
-        for p in parameters:
-            if p.requires_grad:
-                wide = torch.promote_types(p.dtype, torch.float32)
-                self.pairs.append((p, link.down(p).to(wide).requires_grad_()))
-        self.inner = torch.optim.AdamW([master for _, master in self.pairs], **options)
+        self.parameters = [p for p in parameters if p.requires_grad]
+        self.masters = []
+        for p in self.parameters:
+            wide = torch.promote_types(p.dtype, torch.float32)
+            self.masters.append(link.down(p.detach()).to(wide).requires_grad_())
+        self.inner = torch.optim.AdamW(self.masters, **options)
@@
-        for p, master in self.pairs:
-            master.grad = None if p.grad is None else self.link.down(p.grad).to(master.dtype)
+        for p, master in zip(self.parameters, self.masters):
+            master.grad = None if p.grad is None else p.grad.cpu().to(master.dtype)
@@
         self.inner.step()
-        for p, master in self.pairs:
+        for p, master in zip(self.parameters, self.masters):
@@
-                self.link.up(master.to(p.dtype), p)
+                self.link.up(master.detach().to(p.dtype), p)
@@
-        for p, _ in self.pairs:
+        for p in self.parameters:
'''),
    Wrong("never_up", ["nothing was copied up"], '''
-        self.pairs = []
-        for p in parameters:
-            if p.requires_grad:
-                wide = torch.promote_types(p.dtype, torch.float32)
-                self.pairs.append((p, link.down(p).to(wide).requires_grad_()))
-        self.inner = torch.optim.AdamW([master for _, master in self.pairs], **options)
+        self.parameters = [p for p in parameters if p.requires_grad]
+        self.masters = []
+        for p in self.parameters:
+            wide = torch.promote_types(p.dtype, torch.float32)
+            self.masters.append(link.down(p.detach()).to(wide).requires_grad_())
+        self.inner = torch.optim.AdamW(self.masters, **options)
@@
         # BEGIN SOLUTION: down, update, up
-        for p, master in self.pairs:
+        for p, master in zip(self.parameters, self.masters):
@@
-        for p, master in self.pairs:
-            if p.grad is not None:
-                self.link.up(master.to(p.dtype), p)
@@
-        for p, _ in self.pairs:
+        for p in self.parameters:
'''),
    Wrong("new_tensor_each_step", ["extra bytes at the peak"], '''
-        self.pairs = []
-        for p in parameters:
-            if p.requires_grad:
-                wide = torch.promote_types(p.dtype, torch.float32)
-                self.pairs.append((p, link.down(p).to(wide).requires_grad_()))
-        self.inner = torch.optim.AdamW([master for _, master in self.pairs], **options)
+        self.parameters = [p for p in parameters if p.requires_grad]
+        self.masters = []
+        for p in self.parameters:
+            wide = torch.promote_types(p.dtype, torch.float32)
+            self.masters.append(link.down(p.detach()).to(wide).requires_grad_())
+        self.inner = torch.optim.AdamW(self.masters, **options)
@@
         # BEGIN SOLUTION: down, update, up
-        for p, master in self.pairs:
+        for p, master in zip(self.parameters, self.masters):
@@
         self.inner.step()
-        for p, master in self.pairs:
+        news = []
+        for p, master in zip(self.parameters, self.masters):
@@
-                self.link.up(master.to(p.dtype), p)
+                news.append((p, self.link.up(master.detach().to(p.dtype))))
+        for p, new in news:
+            p.data = new
@@
-        for p, _ in self.pairs:
+        for p in self.parameters:
'''),
    Wrong("no_wide_master", ["small updates are lost in 16 bits"], '''
-        self.pairs = []
-        for p in parameters:
-            if p.requires_grad:
-                wide = torch.promote_types(p.dtype, torch.float32)
-                self.pairs.append((p, link.down(p).to(wide).requires_grad_()))
-        self.inner = torch.optim.AdamW([master for _, master in self.pairs], **options)
+        self.parameters = [p for p in parameters if p.requires_grad]
+        self.masters = []
+        for p in self.parameters:
+            wide = p.dtype
+            self.masters.append(link.down(p.detach()).to(wide).requires_grad_())
+        self.inner = torch.optim.AdamW(self.masters, **options)
@@
         # BEGIN SOLUTION: down, update, up
-        for p, master in self.pairs:
+        for p, master in zip(self.parameters, self.masters):
@@
         self.inner.step()
-        for p, master in self.pairs:
+        for p, master in zip(self.parameters, self.masters):
@@
-                self.link.up(master.to(p.dtype), p)
+                self.link.up(master.detach().to(p.dtype), p)
@@
-        for p, _ in self.pairs:
+        for p in self.parameters:
'''),
    Wrong("one_more_buffer", ["bytes on the device for the new optimizer"], '''
-        self.pairs = []
-        for p in parameters:
-            if p.requires_grad:
-                wide = torch.promote_types(p.dtype, torch.float32)
-                self.pairs.append((p, link.down(p).to(wide).requires_grad_()))
-        self.inner = torch.optim.AdamW([master for _, master in self.pairs], **options)
+        self.parameters = [p for p in parameters if p.requires_grad]
+        self.masters = []
+        for p in self.parameters:
+            wide = torch.promote_types(p.dtype, torch.float32)
+            self.masters.append(link.down(p.detach()).to(wide).requires_grad_())
+        self.old = [p.detach().clone() for p in self.parameters]
+        self.inner = torch.optim.AdamW(self.masters, **options)
@@
         # BEGIN SOLUTION: down, update, up
-        for p, master in self.pairs:
+        for p, master in zip(self.parameters, self.masters):
@@
         self.inner.step()
-        for p, master in self.pairs:
+        for p, master in zip(self.parameters, self.masters):
@@
-                self.link.up(master.to(p.dtype), p)
+                self.link.up(master.detach().to(p.dtype), p)
@@
-        for p, _ in self.pairs:
+        for p in self.parameters:
'''),
    Wrong("schedule_ignored", ["did not follow `param_groups`"], '''
-        self.pairs = []
-        for p in parameters:
-            if p.requires_grad:
-                wide = torch.promote_types(p.dtype, torch.float32)
-                self.pairs.append((p, link.down(p).to(wide).requires_grad_()))
-        self.inner = torch.optim.AdamW([master for _, master in self.pairs], **options)
-        self.param_groups = self.inner.param_groups
+        self.parameters = [p for p in parameters if p.requires_grad]
+        self.masters = []
+        for p in self.parameters:
+            wide = torch.promote_types(p.dtype, torch.float32)
+            self.masters.append(link.down(p.detach()).to(wide).requires_grad_())
+        self.inner = torch.optim.AdamW(self.masters, **options)
+        self.param_groups = [dict(group) for group in self.inner.param_groups]
@@
         # BEGIN SOLUTION: down, update, up
-        for p, master in self.pairs:
+        for p, master in zip(self.parameters, self.masters):
@@
         self.inner.step()
-        for p, master in self.pairs:
+        for p, master in zip(self.parameters, self.masters):
@@
-                self.link.up(master.to(p.dtype), p)
+                self.link.up(master.detach().to(p.dtype), p)
@@
-        for p, _ in self.pairs:
+        for p in self.parameters:
'''),
    Wrong("stale_gradients", ["gradients of the step before"], '''
-        self.pairs = []
-        for p in parameters:
-            if p.requires_grad:
-                wide = torch.promote_types(p.dtype, torch.float32)
-                self.pairs.append((p, link.down(p).to(wide).requires_grad_()))
-        self.inner = torch.optim.AdamW([master for _, master in self.pairs], **options)
+        self.parameters = [p for p in parameters if p.requires_grad]
+        self.masters = []
+        for p in self.parameters:
+            wide = torch.promote_types(p.dtype, torch.float32)
+            self.masters.append(link.down(p.detach()).to(wide).requires_grad_())
+        self.inner = torch.optim.AdamW(self.masters, **options)
@@
         # BEGIN SOLUTION: down, update, up
-        for p, master in self.pairs:
+        self.inner.step()
+        for p, master in zip(self.parameters, self.masters):
@@
-        self.inner.step()
-        for p, master in self.pairs:
+        for p, master in zip(self.parameters, self.masters):
@@
-                self.link.up(master.to(p.dtype), p)
+                self.link.up(master.detach().to(p.dtype), p)
@@
-        for p, _ in self.pairs:
+        for p in self.parameters:
'''),
    Wrong("state_copied_both_ways", ["the optimizer's state is copied too"], '''
-        self.pairs = []
-        for p in parameters:
-            if p.requires_grad:
-                wide = torch.promote_types(p.dtype, torch.float32)
-                self.pairs.append((p, link.down(p).to(wide).requires_grad_()))
-        self.inner = torch.optim.AdamW([master for _, master in self.pairs], **options)
+        self.parameters = [p for p in parameters if p.requires_grad]
+        self.masters = []
+        for p in self.parameters:
+            wide = torch.promote_types(p.dtype, torch.float32)
+            self.masters.append(link.down(p.detach()).to(wide).requires_grad_())
+        self.state = {}
+        self.inner = torch.optim.AdamW(self.masters, **options)
@@
         # BEGIN SOLUTION: down, update, up
-        for p, master in self.pairs:
+        for p, master in zip(self.parameters, self.masters):
@@
             master.grad = None if p.grad is None else self.link.down(p.grad).to(master.dtype)
+            for key in ("exp_avg", "exp_avg_sq"):
+                if p.grad is not None and p in self.state:
+                    host = self.link.down(self.state[p][key])
+                    self.inner.state[master][key] = host.to(master.dtype)
@@
         self.inner.step()
-        for p, master in self.pairs:
+        for p, master in zip(self.parameters, self.masters):
@@
-                self.link.up(master.to(p.dtype), p)
+                self.link.up(master.detach().to(p.dtype), p)
+                state = self.inner.state[master]
+                self.state[p] = {k: self.link.up(state[k].to(p.dtype)) for k in ("exp_avg", "exp_avg_sq")}
@@
-        for p, _ in self.pairs:
+        for p in self.parameters:
'''),
    Wrong("state_on_the_device", ["the update is made on the device"], '''
-        self.link = link  # mutate: same
-        self.pairs = []
-        for p in parameters:
-            if p.requires_grad:
-                wide = torch.promote_types(p.dtype, torch.float32)
-                self.pairs.append((p, link.down(p).to(wide).requires_grad_()))
-        self.inner = torch.optim.AdamW([master for _, master in self.pairs], **options)
+        self.parameters = list(parameters)
+        self.inner = torch.optim.AdamW(self.parameters, **options)
@@
-        for p, master in self.pairs:
-            master.grad = None if p.grad is None else self.link.down(p.grad).to(master.dtype)
@@
-        for p, master in self.pairs:
-            if p.grad is not None:
-                self.link.up(master.to(p.dtype), p)
@@
-        for p, _ in self.pairs:
+        for p in self.parameters:
'''),
    Wrong("wide_on_the_link", ["float32 is copied"], '''
-        self.pairs = []
-        for p in parameters:
-            if p.requires_grad:
-                wide = torch.promote_types(p.dtype, torch.float32)
-                self.pairs.append((p, link.down(p).to(wide).requires_grad_()))
-        self.inner = torch.optim.AdamW([master for _, master in self.pairs], **options)
+        self.parameters = [p for p in parameters if p.requires_grad]
+        self.masters = []
+        for p in self.parameters:
+            wide = torch.promote_types(p.dtype, torch.float32)
+            self.masters.append(link.down(p.detach()).to(wide).requires_grad_())
+        self.inner = torch.optim.AdamW(self.masters, **options)
@@
         # BEGIN SOLUTION: down, update, up
-        for p, master in self.pairs:
+        for p, master in zip(self.parameters, self.masters):
@@
         self.inner.step()
-        for p, master in self.pairs:
+        for p, master in zip(self.parameters, self.masters):
@@
-                self.link.up(master.to(p.dtype), p)
+                p.data.copy_(self.link.up(master.detach()))
@@
-        for p, _ in self.pairs:
+        for p in self.parameters:
'''),
]

RIGHT = [
    Right("variant_by_hand", "Adam written out", '''
from collections.abc import Iterable
from typing import Any

import torch


class OffloadedAdam:
    def __init__(
        self,
        parameters: Iterable[torch.Tensor],
        link: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
    ) -> None:
        self.link = link
        self.param_groups = [
            {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        ]
        self.slots = []
        for p in parameters:
            if p.requires_grad:
                master = link.down(p.detach())
                if master.dtype.itemsize < 4:
                    master = master.float()
                self.slots.append([p, master, torch.zeros_like(master), torch.zeros_like(master), 0])

    @torch.no_grad()
    def step(self) -> None:
        options = self.param_groups[0]
        (beta1, beta2), lr = options["betas"], options["lr"]
        for slot in self.slots:
            p, master, first, second, _ = slot
            if p.grad is None:
                continue
            slot[4] += 1
            gradient = self.link.down(p.grad).to(master.dtype)
            master.mul_(1 - lr * options["weight_decay"])
            first.lerp_(gradient, 1 - beta1)
            second.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
            root = second.sqrt().div_((1 - beta2 ** slot[4]) ** 0.5).add_(options["eps"])
            master.addcdiv_(first, root, value=-lr / (1 - beta1 ** slot[4]))
            self.link.up(master.to(p.dtype), p)

    def zero_grad(self) -> None:
        for p, *_ in self.slots:
            p.grad = None
'''),
    Right("variant_one_optimizer_each", "an optimizer for each parameter, inside a real Optimizer", '''
from collections.abc import Iterable
from typing import Any

import torch


class OffloadedAdam(torch.optim.Optimizer):
    def __init__(self, parameters: Iterable[torch.Tensor], link: Any, **options: Any) -> None:
        super().__init__([p for p in parameters if p.requires_grad], {"lr": 1e-3, **options})
        self.link = link
        self.pairs = []
        for p in self.param_groups[0]["params"]:
            host = link.down(p.data)
            master = torch.nn.Parameter(host.float() if host.element_size() == 2 else host)
            self.pairs.append((p, master, torch.optim.AdamW([master], **options)))

    @torch.no_grad()
    def step(self) -> None:
        for p, master, optimizer in self.pairs:
            if p.grad is None:
                continue
            optimizer.param_groups[0]["lr"] = self.param_groups[0]["lr"]
            master.grad = self.link.down(p.grad).to(master)
            optimizer.step()
            self.link.up(master.to(p.dtype), p)
'''),
    Right("variant_pairs", "pairs of parameter and master, and a step that looks at used ones only", '''
from collections.abc import Iterable
from typing import Any

import torch


class OffloadedAdam:
    def __init__(self, parameters: Iterable[torch.Tensor], link: Any, **options: Any) -> None:
        self.link = link
        self.pairs = {}
        for p in parameters:
            if p.requires_grad:
                host = link.down(p.detach())
                self.pairs[p] = host.to(torch.promote_types(host.dtype, torch.float32))
        self.inner = torch.optim.AdamW(list(self.pairs.values()), **options)
        self.param_groups = self.inner.param_groups

    @torch.no_grad()
    def step(self) -> None:
        used = [(p, master) for p, master in self.pairs.items() if p.grad is not None]
        for p, master in used:
            master.grad = self.link.down(p.grad).to(master.dtype)
        self.inner.step()
        for p, master in used:
            self.link.up(master.to(p.dtype), p)
            master.grad = None

    def zero_grad(self) -> None:
        for p in self.pairs:
            p.grad = None
'''),
]
