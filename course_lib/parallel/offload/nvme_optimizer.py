"""Optimizer state and master weights on the disk; the host holds those of three parameters at most.

Notebook: 05 Offload (nvme_store, when_offload_pays).
Paper: Rajbhandari et al., "ZeRO-Infinity" (2021), sections 5.1.1 and 6.3.
Costs a step: the state once from the disk and once to it (12 bytes a parameter and direction for
Adam in float32), gradients down and parameters up as in ZeRO-Offload; no collective.
The production version cuts the state into equal pieces, whatever the sizes of the parameters are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any

import torch
from torch import nn

from course_lib.parallel.offload.device_pool import DevicePool
from course_lib.parallel.offload.nvme import NvmeStore
from course_lib.parallel.offload.optimizer import OffloadedOptimizer, Slot
from course_lib.parallel.optimizer_probe import refuse_joint_update
from course_lib.trace import Refusal


class NvmeOptimizer(OffloadedOptimizer):
    """Wraps an optimizer class: the same updates, parameter by parameter, with state from files.

    While one parameter is updated, the next one's state is being read and the last one's written.

    Args:
        params: parameters or parameter groups.
        optimizer: its class, one that needs no parameter to update another.
        pool: the device that the parameters are on.
        store: where the state goes; one for each optimizer.
        options: for the optimizer.

    Raises:
        CommError: a step for each parameter is not a step for all, which a trial finds out.
        Refusal: (in a step) another optimizer was made with the same store since.

    Attributes:
        host_peak: the most bytes of state and master weights that the host ever held.
    """

    def __init__(
        self,
        params: Iterable[Any],
        optimizer: Callable[..., Any],
        pool: DevicePool,
        store: NvmeStore,
        **options: Any,
    ) -> None:
        self.store, self._mine = store, object()
        store.user = self._mine
        self.host_peak = 0
        self._files: dict[nn.Parameter, list[str]] = {}
        self._sizes: dict[nn.Parameter, int] = {}
        self._writes: list[Future[None]] = []
        super().__init__(params, optimizer, pool, **options)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds parameters; their master weights go to the disk at once."""
        known = len(self._slots)
        super().add_param_group(param_group)
        refuse_joint_update("NvmeOptimizer", self, len(self.param_groups) - 1)
        for number, slot in enumerate(self._slots[known:], known):
            self._put_away(number, slot)
        self._settle()

    def state_dict(self) -> dict[str, Any]:
        """Refused: the state is in the store's folder, which can be copied between two steps."""
        raise Refusal(
            f"the state of {len(self._slots)} parameters, in memory",
            f"it is in {self.store.folder.name}, {sum(self._sizes.values()):,} bytes",
            "it is there because memory is short: copy the folder",
        )

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Refused, as `state_dict` is."""
        self.state_dict()

    def _update(self, slots: list[Slot]) -> None:
        if self.store.user is not self._mine:
            raise Refusal(
                f"a step of {len(slots)} parameters, whose state is in {self.store.folder.name}",
                "another optimizer was made with this store, and has written over the files",
                "both call them by numbers: give each a store with a folder of its own",
            )
        files = [self._files[slot.master] for slot in slots]
        for place, (slot, (_, tensors)) in enumerate(
            zip(slots, self.store.stream(files), strict=True)
        ):
            self._bring_back(slot, tensors)
            slot.follow()
            slot.master.grad, slot.gradient = slot.gradient, None
            self.inner.step()  # the others have no gradient, and are skipped
            slot.parameter_there(slot.parameter_up())
            self._settle()
            self._put_away(self._slots.index(slot), slot)
            near = slots[max(0, place - 1) : place + 2]  # one written, one in use, one being read
            self.host_peak = max(self.host_peak, sum(self._sizes[s.master] for s in near))
        self._settle()

    def _put_away(self, number: int, slot: Slot) -> None:
        """Starts to write the master and its state, and forgets them here."""
        master, state = slot.master, self.inner.state[slot.master]
        large = {k: v for k, v in state.items() if isinstance(v, torch.Tensor) and v.dim()}
        tensors = {"master": master.detach(), **large}
        self._sizes[master] = sum(tensor.nbytes for tensor in tensors.values())
        self._files[master] = [f"{number}.{key}" for key in tensors]
        self._writes += [self.store.start_write(f"{number}.{k}", v) for k, v in tensors.items()]
        for key in large:
            state[key] = None
        master.grad = None
        master.data = master.new_empty(0)

    def _bring_back(self, slot: Slot, tensors: list[torch.Tensor]) -> None:
        keys = [name.partition(".")[2] for name in self._files[slot.master]]
        for key, tensor in zip(keys, tensors, strict=True):
            if key == "master":
                slot.master.data = tensor
            else:
                self.inner.state[slot.master][key] = tensor

    def _settle(self) -> None:
        """Waits for the writes; a file must be whole before it is read again."""
        for write in self._writes:
            write.result()
        self._writes.clear()
