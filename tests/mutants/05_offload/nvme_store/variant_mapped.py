"""variant: a page of header and a mapped file"""

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
        flat = tensor.detach().contiguous().view(-1).view(torch.uint8)
        about = {"name": name, "dtype": str(tensor.dtype)[6:], "shape": tuple(tensor.shape)}
        about["crc"] = zlib.crc32(flat.numpy())
        text = json.dumps(about).encode().ljust(1000)
        other = self.folder / ("." + name)
        with other.open("wb", buffering=0) as file:
            file.write(text + zlib.crc32(text).to_bytes(24, "big"))
            file.write(memoryview(flat.numpy()))
            os.fsync(file)
        other.replace(self.folder / name)

    def read(self, name: str) -> torch.Tensor:
        path = self.folder / name
        size = path.stat().st_size
        if size < 1024:
            raise TornFile(f"{name} has no header")
        mapped = torch.from_file(str(path), shared=False, size=size, dtype=torch.uint8)
        page = bytes(mapped[:1024].tolist())
        if zlib.crc32(page[:1000]) != int.from_bytes(page[1000:], "big"):
            raise TornFile(f"the header of {name} is damaged")
        about = json.loads(page[:1000])
        tensor = torch.empty(about["shape"], dtype=getattr(torch, about["dtype"]))
        good = about["name"] == name and tensor.nbytes == size - 1024
        if not good or zlib.crc32(mapped[1024:].numpy()) != about["crc"]:
            raise TornFile(f"{name} is damaged")
        if tensor.numel():
            tensor.view(-1).view(torch.uint8).copy_(mapped[1024:])
        return tensor

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
