"""Wrong and right answers to `activation_offload`: see `course dev show activation_offload`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("frozen_weights_travel", ["weights, their views, or small tensors are copied as well"], '''
-    resident = {w.untyped_storage().data_ptr() for w in weights}  # mutate: same
+    resident = {w.untyped_storage().data_ptr() for w in weights if w.requires_grad}
'''),
    Wrong("a_storages_bytes", ["small tensors are copied"], '''
-        stays = tensor.untyped_storage().data_ptr() in resident or tensor.nbytes < smallest
+        size = tensor.untyped_storage().nbytes()
+        stays = tensor.untyped_storage().data_ptr() in resident or size < smallest
'''),
    Wrong("half_precision", ["wrong value"], '''
-        return (tensor, None) if stays else (None, link.down(tensor))
+        return (tensor, None) if stays else (None, link.down(tensor.float()).to(tensor.dtype))
'''),
    Wrong("exactly_the_smallest_stays", ["the activations are still there"], '''
-        stays = tensor.untyped_storage().data_ptr() in resident or tensor.nbytes < smallest
+        stays = tensor.untyped_storage().data_ptr() in resident or tensor.nbytes <= smallest
'''),
    Wrong("indices_stay", ["the activations are still there"], '''
-        stays = tensor.untyped_storage().data_ptr() in resident or tensor.nbytes < smallest
+        stays = tensor.untyped_storage().data_ptr() in resident or tensor.nbytes < smallest
+        stays = stays or not tensor.is_floating_point()
'''),
    Wrong("keeps_the_original", ["the activations are still there"], '''
-        return (tensor, None) if stays else (None, link.down(tensor))
+        return (tensor, None) if stays else (None, link.down(tensor), tensor)
@@
-        there, host = packed
+        there, host, *_ = packed
'''),
    Wrong("kept_after_backward", ["is kept"], '''
     resident = {w.untyped_storage().data_ptr() for w in weights}  # mutate: same
+    back = link.__dict__.setdefault("back", {})
@@
-        return link.up(host) if there is None else there
+        if there is not None:
+            return there
+        if id(host) not in back:
+            back[id(host)] = host, link.up(host)
+        return back[id(host)][1]
'''),
    Wrong("kept_between_backwards", ["is kept"], '''
     resident = {w.untyped_storage().data_ptr() for w in weights}  # mutate: same
+    back = {}
@@
-        return link.up(host) if there is None else there
+        if there is not None:
+            return there
+        if id(host) not in back:
+            back[id(host)] = host, link.up(host)
+        return back[id(host)][1]
'''),
    Wrong("nothing_offloaded", ["the activations are still there", "hardly anything went down"], '''
-    resident = {w.untyped_storage().data_ptr() for w in weights}  # mutate: same
-
-    def pack(tensor: torch.Tensor) -> Any:  # mutate: same
-        stays = tensor.untyped_storage().data_ptr() in resident or tensor.nbytes < smallest
-        return (tensor, None) if stays else (None, link.down(tensor))
-
-    def unpack(packed: Any) -> torch.Tensor:
-        there, host = packed
-        return link.up(host) if there is None else there
-
-    return torch.autograd.graph.saved_tensors_hooks(pack, unpack)
+    def keep(tensor: torch.Tensor) -> torch.Tensor:
+        return tensor
+
+    return torch.autograd.graph.saved_tensors_hooks(keep, keep)
'''),
    Wrong("numbers_for_bytes", ["the activations are still there"], '''
-        stays = tensor.untyped_storage().data_ptr() in resident or tensor.nbytes < smallest
+        stays = tensor.untyped_storage().data_ptr() in resident or 4 * tensor.numel() < smallest
'''),
    Wrong("small_ones_travel", ["small tensors are copied"], '''
-        stays = tensor.untyped_storage().data_ptr() in resident or tensor.nbytes < smallest
+        stays = tensor.untyped_storage().data_ptr() in resident
'''),
    Wrong("stays_on_the_host", ["was given a tensor on the device and one on the host"], '''
-        return link.up(host) if there is None else there
+        return host if there is None else there
'''),
    Wrong("transposed_ones_stay", ["the activations are still there"], '''
-        stays = tensor.untyped_storage().data_ptr() in resident or tensor.nbytes < smallest
+        stays = tensor.untyped_storage().data_ptr() in resident or tensor.nbytes < smallest
+        stays = stays or not tensor.is_contiguous()
'''),
    Wrong("vectors_stay", ["the activations are still there"], '''
-        stays = tensor.untyped_storage().data_ptr() in resident or tensor.nbytes < smallest
+        stays = tensor.untyped_storage().data_ptr() in resident or tensor.nbytes < smallest
+        stays = stays or tensor.dim() < 2
'''),
    Wrong("views_of_weights_travel", ["weights"], '''
-        stays = tensor.untyped_storage().data_ptr() in resident or tensor.nbytes < smallest
+        stays = any(tensor is w for w in weights) or tensor.nbytes < smallest
'''),
    Wrong("views_at_an_offset_travel", ["weights"], '''
-        stays = tensor.untyped_storage().data_ptr() in resident or tensor.nbytes < smallest
+        own = {w.data_ptr() for w in weights}
+        stays = tensor.data_ptr() in own or tensor.nbytes < smallest
'''),
    Wrong("weights_travel", ["weights"], '''
-        stays = tensor.untyped_storage().data_ptr() in resident or tensor.nbytes < smallest
+        stays = tensor.nbytes < smallest
'''),
]

RIGHT = [
    Right("variant_class", "a class, and each tensor goes down once", '''
import weakref
from collections.abc import Sequence
from typing import Any

import torch


class activation_offload(torch.autograd.graph.saved_tensors_hooks):
    def __init__(self, weights: Sequence[torch.Tensor], link: Any, smallest: int) -> None:
        self.link, self.smallest = link, smallest
        self.weights = {w.untyped_storage().data_ptr() for w in weights}
        self.known = {}
        super().__init__(self.pack, self.unpack)

    def pack(self, tensor: torch.Tensor) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() in self.weights or tensor.nbytes < self.smallest:
            return tensor
        key = (storage._cdata, tensor.shape, tensor.stride(), tensor.storage_offset())
        if key not in self.known:
            self.known[key] = [self.link.down(tensor)]
            weakref.finalize(storage, self.known.pop, key, None)
        return self.known[key]

    def unpack(self, packed: Any) -> torch.Tensor:
        return self.link.up(packed[0]) if isinstance(packed, list) else packed
'''),
]
