"""Python objects on their way between processes; tensors go as raw memory, not as pickles.

Notebook: none; `pull` and `push` use it.
Source: PEP 574, pickle protocol 5 with out-of-band data.
Costs one copy into an anonymous file that the receiver maps: 64 MiB in about 30 ms.
The production version is torch's own tensor sharing, which needs a server for its file numbers.
"""

from __future__ import annotations

import io
import os
import pickle
import sys
from collections.abc import Callable
from typing import Any

import cloudpickle

from course_lib.ranks.channel import Channel, anonymous_file, map_file

INLINE = 256 * 1024  # bytes; below it, a file costs more than the copies it saves


class _Pickler(cloudpickle.Pickler):
    """Pickles functions by value, and CPU tensors as out-of-band bytes."""

    def reducer_override(self, obj: Any) -> Any:
        kind = type(obj)
        if kind.__module__.startswith("torch") and kind.__name__ in ("Tensor", "Parameter"):
            return _reduce_tensor(obj)
        return super().reducer_override(obj)


def _reduce_tensor(tensor: Any) -> Any:
    import torch

    if tensor.layout is not torch.strided or tensor.device.type == "meta":
        return NotImplemented
    data = tensor.detach().cpu().contiguous()
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


def send_object(channel: Channel, message: dict[str, Any], value: Any) -> None:
    """Sends `message` with an object along; `receive_object` on the other side unpacks it.

    Raises:
        Exception: what pickling raised: the object cannot leave its process.
    """
    buffers: list[pickle.PickleBuffer] = []
    stream = io.BytesIO()
    _Pickler(stream, protocol=5, buffer_callback=buffers.append).dump(value)
    text, views = stream.getvalue(), [buffer.raw() for buffer in buffers]
    sizes = [view.nbytes for view in views]
    message = {**message, "pickle": len(text), "buffers": sizes}
    if sum(sizes) <= INLINE:
        channel.send(message, raw=b"".join([text, *views]))
        return
    fd = anonymous_file(sum(sizes))
    try:
        for view in views:
            while view.nbytes:
                view = view[os.write(fd, view) :]
        channel.send(message, raw=text, fds=(fd,))
    finally:
        os.close(fd)


def load_object(message: dict[str, Any], raw: bytes, fds: list[int]) -> Any:
    """The object that came along with a received message.

    Raises:
        Exception: what unpickling raised.
    """
    memory = memoryview(map_file(fds[0], writable=False) if fds else bytearray(raw))
    at = 0 if fds else message["pickle"]
    buffers = []
    for size in message["buffers"]:
        buffers.append(memory[at : at + size])
        at += size
    return pickle.loads(raw[: message["pickle"]], buffers=buffers)


class by_value:
    """While it lasts, functions of a user's own module are pickled by value.

    A rank cannot import a test module or a script that the kernel runs.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        module = sys.modules.get(getattr(function, "__module__", "") or "")
        path = getattr(module, "__file__", None) or ""
        ours = "site-packages" in path or f"{os.sep}course_lib{os.sep}" in path
        is_main = module is None or module.__name__ == "__main__"
        self.module = module if path and not ours and not is_main else None

    def __enter__(self) -> None:
        if self.module is not None:
            cloudpickle.register_pickle_by_value(self.module)

    def __exit__(self, *exc: object) -> None:
        if self.module is not None:
            cloudpickle.unregister_pickle_by_value(self.module)
