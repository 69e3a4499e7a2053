"""variant: a digest at the end, the lengths in front"""

import hashlib
import json
import os
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from pathlib import Path

import torch


class TornFile(RuntimeError):
    """A file that is not as it was written."""


class NvmeStore:
    def __init__(self, folder: str, executor: Executor) -> None:
        self.folder = Path(folder)
        self.executor = executor

    def write(self, name: str, tensor: torch.Tensor) -> None:
        data = tensor.detach().clone(memory_format=torch.contiguous_format).reshape(-1)
        raw = data.view(torch.uint8).numpy().tobytes()
        head = f"{name}|{str(tensor.dtype)[6:]}|{','.join(map(str, tensor.shape))}|{len(raw)}|"
        text = head.encode().ljust(256, b" ") + raw
        unfinished = self.folder / f"{name}~"
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            os.write(descriptor, text + hashlib.sha256(text).digest())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(unfinished, self.folder / name)

    def read(self, name: str) -> torch.Tensor:
        with open(self.folder / name, "rb") as file:
            text = file.read()
        if hashlib.sha256(text[:-32]).digest() != text[-32:] or not text.startswith(f"{name}|".encode()):
            raise TornFile(f"torn: {name}")
        _, dtype, shape, count, _ = text[:256].decode().split("|")
        sizes = [int(size) for size in shape.split(",") if size]
        flat = torch.tensor(list(text[256 : 256 + int(count)]), dtype=torch.uint8)
        return flat.view(getattr(torch, dtype)).reshape(sizes)

    def stream(self, names: Sequence[str]) -> Iterator[tuple[str, torch.Tensor]]:
        under_way = [self.executor.submit(self.read, name) for name in names[:1]]
        try:
            for number, name in enumerate(names):
                tensor = under_way.pop().result()
                for after in names[number + 1 : number + 2]:
                    under_way.append(self.executor.submit(self.read, after))
                yield name, tensor
        finally:
            for read in under_way:
                read.exception()
