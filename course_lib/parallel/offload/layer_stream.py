"""Layers live on the host and pass through the device: two at a time, one computing, one arriving.

Notebook: 05 Offload (double_buffer).
Paper: Pudipeddi et al., "Training Large Neural Networks with Constant Memory" (2020); Rajbhandari
et al., "ZeRO-Infinity" (2021), section 6.2.
Costs a step: 2·S bytes up (forward and backward) and S bytes of gradients down, S the bytes of the
layers; the device holds two layers, and one layer's gradients.
The production version (DeepSpeed) learns the order in which layers are used in the first step,
divides each copy over the links of all GPUs, and copies gradients down during the next layer's
backward, which waits for them here.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from course_lib.parallel.offload.device_pool import Copy, DevicePool
from course_lib.parallel.shared_memory import refuse_shared_memory
from course_lib.trace import Refusal


class _Layer:
    """One layer: its parameters on the device, which come and go, and their masters on the host."""

    def __init__(self, module: nn.Module, name: str, pool: DevicePool) -> None:
        self.module, self.name, self._pool = module, name, pool
        self.parameters = list(module.parameters())
        self.there: dict[nn.Parameter, torch.Tensor] = {}  # on the device, perhaps without values
        self.masters = [self._move_out(p) for p in self.parameters]
        self.hide()
        self.resident = self.goes_back = self.in_backward = False
        self.begun = 0.0
        self.gradient_bytes = sum(m.nbytes for m in self.masters if m.requires_grad)
        self._copies: list[Copy] = []

    def _move_out(self, parameter: nn.Parameter) -> nn.Parameter:
        """The parameter's value on the host."""
        host = self._pool.host_like(parameter)
        self._pool.copy_down(parameter, host).wait_on_host()
        self.there[parameter] = there = parameter.detach().clone()  # a storage of its own
        there.untyped_storage().resize_(0)
        return nn.Parameter(host, requires_grad=parameter.requires_grad)

    def hide(self) -> None:
        """Parameters are empty: whoever reads one finds nothing, and not memory that is gone."""
        for parameter in self.parameters:
            parameter.data = self.there[parameter].new_empty(0)

    def show_host(self) -> None:
        """Parameters are the host's, for who saves or loads the module."""
        self.drop()
        for parameter, master in zip(self.parameters, self.masters, strict=True):
            parameter.data = master.data

    def versions(self) -> list[int]:
        """They differ after each change of a master in place."""
        return [master._version for master in self.masters]

    def fetch(self) -> None:
        """Starts the copy to the device, unless it is there or on its way."""
        if self.resident:
            return
        self._pool.ledger.mark(f"gather {self.name}")
        self.resident = True
        for parameter, master in zip(self.parameters, self.masters, strict=True):
            there = self.there[parameter]
            self._pool.grow(there, "parameters", self.name)
            # `.data`: the graph has saved these tensors, and must not count this as a change.
            parameter.data = there
            self._copies.append(self._pool.copy_up(master, there))

    def arrive(self) -> None:
        """Waits until the layer is complete."""
        self.fetch()
        if self._copies:
            for copy in self._copies:
                copy.wait()
            self._copies.clear()
            self._pool.ledger.mark(f"gathered {self.name}")

    def drop(self) -> None:
        """Frees the layer's bytes on the device; nothing is copied, since nothing has changed."""
        if self.resident:
            self.arrive()  # a copy under way would land in memory that is no longer ours
            for parameter in self.parameters:
                self._pool.shrink(self.there[parameter], "parameters")
            self.hide()
            self.resident = False
            self._pool.ledger.mark(f"free {self.name}")

    def gradients_down(self) -> None:
        """Adds the gradients to the masters', and frees them on the device."""
        for parameter, master in zip(self.parameters, self.masters, strict=True):
            if parameter.grad is not None:
                host = self._pool.host_like(parameter)
                value = self._pool.copy_down(parameter.grad, host).wait_on_host()
                master.grad = value if master.grad is None else master.grad + value
                parameter.grad = None


class LayerStream:
    """Takes over layers that are called one after another, each once in a forward.

    Forward goes up the list and backward down, and while one layer computes, the next is on its
    way. Give the host's parameters to an optimizer: `torch.optim.AdamW(stream.parameters())`.
    The last layer stays after a forward that is to be followed by a backward, which begins with it.
    The parameters of a layer that is not on the device are empty. `state_dict` has the host's
    values, and `load_state_dict` writes to these.
    What a backward that raised has computed is forgotten when the next forward begins.

    Args:
        layers: modules whose output is one tensor, with no parameter in two of them.
        pool: the device.
        name: the layers are called `name.0`, `name.1`, ... in the ledger, with the marks
            `gather`, `gathered` and `free` and the spans `forward` and `backward`.

    Raises:
        Refusal: a parameter belongs to two layers, or shares memory with another; (in forward) the
            layers are called in another order, or one returns something else than a tensor; (in
            backward) weights were changed since the forward.
        OutOfMemory: (in forward and backward) two layers do not fit.
    """

    def __init__(self, layers: Sequence[nn.Module], pool: DevicePool, name: str = "blocks") -> None:
        self.pool = pool
        found = [id(p) for layer in layers for p in layer.parameters()]
        if len(set(found)) != len(found):
            raise Refusal(
                f"stream {len(layers)} layers, each by itself",
                f"{len(found) - len(set(found))} parameters that are in two of them",
                "one would be freed while the other is in use: keep tied ones on the device",
            )
        given = {f"{n} of layer {i}": t for i, layer in enumerate(layers)
                 for n, t in [*layer.named_parameters(), *layer.named_buffers()]}  # fmt: skip
        refuse_shared_memory(f"stream {len(layers)} layers, each by itself", given)
        self._layers = [_Layer(m, f"{name}.{i}", pool) for i, m in enumerate(layers)]
        self._last = len(layers)  # the layer that forward called last
        for index, module in enumerate(layers):
            self._follow_states(module, self._layers[index])
            module.register_forward_pre_hook(partial(self._before_forward, index))
            module.register_forward_hook(partial(self._after_forward, index))

    def parameters(self) -> list[nn.Parameter]:
        """The host's parameters, layer by layer; their gradients are there after a backward."""
        return [master for layer in self._layers for master in layer.masters]

    def _follow_states(self, module: nn.Module, layer: _Layer) -> None:
        def before(*_: Any) -> None:
            layer.show_host()

        def after(*_: Any) -> None:
            layer.hide()

        module.register_state_dict_pre_hook(before)
        module.register_state_dict_post_hook(after)
        module.register_load_state_dict_pre_hook(before)
        module.register_load_state_dict_post_hook(after)

    # --- forward ---------------------------------------------------------------------------------
    def _before_forward(self, index: int, *_: Any) -> None:
        if torch._C._current_graph_task_id() == -1:  # in backward, a checkpoint calls as it needs
            self._follow(index)
            for layer in self._layers if index == 0 else ():
                self._abandon(layer)
        for other in self._layers[index + 1 :] if index == 0 else ():
            other.drop()  # left from a forward that had no backward
        self._turn(index, index + 1)

    def _follow(self, index: int) -> None:
        """A forward begins with the first layer and goes up; backward relies on it."""
        if index <= self._last and index:
            raise Refusal(
                f"call layer {index}, {self._layers[index].name}",
                f"layer {self._last} was called before it"
                if self._last < len(self._layers)
                else "no call of layer 0 before it",
                "layers come and go in the order in which they were given: give them as called",
            )
        self._last = index

    def _after_forward(self, index: int, module: nn.Module, inputs: Any, output: Any) -> None:
        self._book("forward", index)
        if not torch.is_tensor(output):
            raise Refusal(
                f"stream {self._layers[index].name}, a {type(module).__name__}",
                f"it returned a {type(output).__name__}",
                "its backward begins with the gradient of its output: return one tensor",
            )
        goes_back = self._layers[index].goes_back = output.requires_grad
        if goes_back:
            versions = self._layers[index].versions()
            output.register_hook(partial(self._before_backward, index, versions))
        if not goes_back or index + 1 < len(self._layers):
            self._layers[index].drop()

    # --- backward --------------------------------------------------------------------------------
    def _before_backward(self, index: int, versions: list[int], gradient: torch.Tensor) -> None:
        """The gradient of a layer's output is there: the layer after it is done."""
        if self._layers[index].versions() != versions:
            raise Refusal(
                f"a backward of layer {index}, {self._layers[index].name}",
                "its weights were changed since that forward, as by an optimizer's step",
                "they would come from the host as they are now: step after all backwards",
            )
        if index + 1 < len(self._layers):
            self._finish(index + 1)
        goes_on = index > 0 and self._layers[index - 1].goes_back
        self._turn(index, index - 1 if goes_on else -1)
        if not (layer := self._layers[index]).in_backward:
            self.pool.take(layer.gradient_bytes, "gradients", f"gradients of {index}")
        layer.in_backward = True
        if not goes_on:
            torch.autograd.Variable._execution_engine.queue_callback(partial(self._finish, index))

    def _finish(self, index: int) -> None:
        layer = self._layers[index]
        if layer.in_backward:  # otherwise this backward has not come to it, or is past it
            self._book("backward", index)
            layer.gradients_down()
        self._leave(layer)

    def _leave(self, layer: _Layer) -> None:
        if layer.in_backward:
            self.pool.give(layer.gradient_bytes, "gradients")
        layer.in_backward = False
        layer.drop()

    def _abandon(self, layer: _Layer) -> None:
        """What a backward that raised has left behind is no part of the next one."""
        if layer.in_backward:
            for parameter in layer.parameters:
                parameter.grad = None
            self._leave(layer)

    # --- both ------------------------------------------------------------------------------------
    def _turn(self, index: int, coming: int) -> None:
        """Waits for one layer, then starts the copy of the next, beside the work on this one."""
        self._layers[index].arrive()
        self._layers[index].begun = time.monotonic()
        if 0 <= coming < len(self._layers):
            self._layers[coming].fetch()

    def _book(self, what: str, index: int) -> None:
        layer = self._layers[index]
        self.pool.ledger.add_span(f"{what} {layer.name}", layer.begun)
