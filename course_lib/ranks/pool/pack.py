"""Python objects on their way between processes; tensors go as raw memory, not as pickles."""

from __future__ import annotations

import io
import os
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import ModuleType
from typing import Any

import cloudpickle

from course_lib.ranks.start.channel import Channel, anonymous_file, map_file
from course_lib.trace import Refusal

INLINE = 256 * 1024  # bytes; below it, a file costs more than the copies it saves
ALIGN = 64  # bytes: where a tensor may begin, so that vector instructions find it in place
TURN = threading.RLock()  # cloudpickle's list of modules is one for all threads


class _Pickler(cloudpickle.Pickler):
    """Pickles functions by value, and CPU tensors as out-of-band bytes."""

    def reducer_override(self, obj: Any) -> Any:
        kind = type(obj)
        if kind.__module__.startswith("torch") and kind.__name__ in ("Tensor", "Parameter"):
            return _reduce_tensor(obj)
        return super().reducer_override(obj)


def _reduce_tensor(tensor: Any) -> Any:
    import torch

    if tensor.layout is not torch.strided or tensor.is_meta or tensor.is_quantized:
        return NotImplemented  # torch's own way: there are no bytes, or not they alone
    data = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    raw = data.reshape(-1).view(torch.uint8).numpy() if data.numel() else b""
    dtype = str(tensor.dtype).removeprefix("torch.")
    is_parameter = type(tensor).__name__ == "Parameter"
    form = (dtype, tuple(tensor.shape), tensor.requires_grad, is_parameter)
    return _rebuild_tensor, (pickle.PickleBuffer(raw), *form)


def _rebuild_tensor(
    raw: Any, dtype: str, shape: tuple[int, ...], grad: bool, is_parameter: bool
) -> Any:
    import torch

    if memoryview(raw).nbytes == 0:
        tensor = torch.empty(shape, dtype=getattr(torch, dtype))
    else:
        tensor = torch.frombuffer(raw, dtype=getattr(torch, dtype)).reshape(shape)
    if is_parameter:
        return torch.nn.Parameter(tensor, requires_grad=grad)
    return tensor.requires_grad_() if grad else tensor


class Packed:
    """An object on its way: pickled once, and sent to any number of processes.

    Raises:
        Exception: what pickling raised: the object cannot leave its process.
    """

    def __init__(self, value: Any) -> None:
        buffers: list[pickle.PickleBuffer] = []
        stream = io.BytesIO()
        _Pickler(stream, protocol=5, buffer_callback=buffers.append).dump(value)
        views = [buffer.raw() for buffer in buffers]
        self._sizes = [view.nbytes for view in views]
        self._pickle, self._inline = stream.getvalue(), b""
        self._fds: tuple[int, ...] = ()
        if sum(self._sizes) <= INLINE:
            self._inline = b"".join(bytes(view) + b"\0" * _gap(view.nbytes) for view in views)
        else:
            self._fds = (_file_of(views),)

    def send(self, channel: Channel, message: dict[str, Any]) -> None:
        """Sends `message` with the object along; `load_object` on the other side unpacks it."""
        message = {**message, "buffers": self._sizes, "pickle": len(self._pickle)}
        channel.send(message, raw=self._inline + self._pickle, fds=self._fds)

    def close(self) -> None:
        """Gives up the sender's copy."""
        for fd in self._fds:
            os.close(fd)
        self._fds = ()

    def __enter__(self) -> Packed:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def packed(value: Any) -> Packed:
    """The object, ready to be sent.

    Raises:
        Refusal: it cannot leave this process.
    """
    try:
        return Packed(value)
    except Exception as error:
        raise Refusal(
            "send this to the ranks",
            str(error),
            "only what can be pickled goes from one process to another",
        ) from error


def _gap(size: int) -> int:
    """Bytes between a buffer of `size` bytes and the next, which begins aligned."""
    return -size % ALIGN


def _file_of(views: list[memoryview]) -> int:
    """An anonymous file that holds the buffers, each aligned."""
    fd: int = anonymous_file(sum(view.nbytes + _gap(view.nbytes) for view in views))
    try:
        for view in views:
            gap = _gap(view.nbytes)
            while view.nbytes:
                view = view[os.write(fd, view) :]
            os.lseek(fd, gap, os.SEEK_CUR)
    except BaseException:  # an interrupt, most likely: the memory must not stay
        os.close(fd)
        raise
    return fd


def load_object(message: dict[str, Any], raw: bytes, fds: list[int]) -> Any:
    """The object that came along with a received message; its tensors can be written to.

    Raises:
        Exception: what unpickling raised.
    """
    memory = memoryview(map_file(fds[0], writable=False) if fds else bytearray(raw))
    text = raw[len(raw) - message["pickle"] :]
    at, buffers = 0, []
    for size in message["buffers"]:
        buffers.append(memory[at : at + size])
        at += size + _gap(size)
    return pickle.loads(text, buffers=buffers)


@contextmanager
def by_value(function: Callable[..., Any]) -> Iterator[None]:
    """In this block, functions of a user's own module are pickled by value; for one thread a time.

    A rank cannot import a test module or a script that the kernel runs.
    """
    module = _own_module(function)
    with TURN:
        known = cloudpickle.list_registry_pickle_by_value()
        if module is None or module.__name__ in known:
            yield
            return
        cloudpickle.register_pickle_by_value(module)
        try:
            yield
        finally:
            cloudpickle.unregister_pickle_by_value(module)


def _own_module(function: Callable[..., Any]) -> ModuleType | None:
    """The module of a user's function; None if a rank can import it, or it is the main one."""
    while isinstance(function, partial):
        function = function.func
    name = getattr(function, "__module__", "") or ""
    module = sys.modules.get(name)
    path = getattr(module, "__file__", None) or ""
    known = name.partition(".")[0] in sys.stdlib_module_names
    ours = known or "site-packages" in path or f"{os.sep}course_lib{os.sep}" in path
    is_main = module is None or module.__name__ == "__main__"
    return module if path and not ours and not is_main else None
