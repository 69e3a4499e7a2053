"""mutant: the message does not name the tensor"""

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
        data = tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
        about = [name, str(tensor.dtype).removeprefix("torch."), list(tensor.shape), len(data)]
        body = json.dumps(about).encode() + b"\n" + data
        with open(self.folder / f"{name}.new", "wb") as file:
            file.write(zlib.crc32(body).to_bytes(4, "little") + body)
            file.flush()
            os.fsync(file.fileno())
        os.replace(self.folder / f"{name}.new", self.folder / name)

    def read(self, name: str) -> torch.Tensor:
        whole = (self.folder / name).read_bytes()
        if len(whole) <= 4 or zlib.crc32(whole[4:]) != int.from_bytes(whole[:4], "little"):
            raise TornFile("the checksum does not fit")
        header, _, data = whole[4:].partition(b"\n")
        written, dtype, shape, count = json.loads(header)
        if written != name or count != len(data):
            raise TornFile(f"{name}: this is the file of {written}")
        tensor = torch.empty(shape, dtype=getattr(torch, dtype))
        if data:
            flat = torch.frombuffer(bytearray(data), dtype=torch.uint8)
            tensor.view(-1).view(torch.uint8).copy_(flat)
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
