"""Wrong and right answers to `nvme_store`: see `course dev show nvme_store`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("skips_what_seems_written", ["torn and written again", "write it in any case"], '''
-        with open(self.folder / f"{name}.new", "wb") as file:
+        checksum = zlib.crc32(body).to_bytes(4, "little")
+        if (self.folder / name).exists() and (self.folder / name).read_bytes()[:4] == checksum:
+            return
+        with open(self.folder / f"{name}.new", "wb") as file:
'''),
    Wrong("common_dtypes_only", ["KeyError: 'complex64'"], '''
-        tensor = torch.empty(shape, dtype=getattr(torch, dtype))
+        kinds = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32,
+                 torch.int16, torch.int8, torch.uint8, torch.bool)
+        tensor = torch.empty(shape, dtype={str(kind)[6:]: kind for kind in kinds}[dtype])
'''),
    Wrong("sum_of_the_data", ["in each other's place", "a sum of bytes is the same in any order"], '''
-            file.write(zlib.crc32(body).to_bytes(4, "little") + body)
+            total = zlib.crc32(body[: len(body) - len(data)]) + sum(data)
+            file.write((total % 2**32).to_bytes(4, "little") + body)
@@
-        if len(whole) <= 4 or zlib.crc32(whole[4:]) != checksum:  # mutate: same
+        first, newline, rest = whole[4:].partition(b"\\n")
+        if len(whole) <= 4 or (zlib.crc32(first + newline) + sum(rest)) % 2**32 != checksum:
'''),
    Wrong("other_name_in_another_folder", ["the other name is in another folder"], '''
-        with open(self.folder / f"{name}.new", "wb") as file:
+        with open(self.folder.parent / f"{name}.new", "wb") as file:
@@
-        os.replace(self.folder / f"{name}.new", self.folder / name)
+        os.replace(self.folder.parent / f"{name}.new", self.folder / name)
'''),
    Wrong("leaves_a_read_behind_a_torn_one", ["after the read of a torn file has raised", "`finally`"], '''
-                tensor = under_way.pop().result()
+                read = under_way.pop()
@@
-                yield name, tensor
-        finally:
+                yield name, read.result()
+        except GeneratorExit:
'''),
    Wrong("shuts_the_executor", ["the executor belongs to the caller"], '''
-        finally:
-            for read in under_way:
-                read.exception()
+        except GeneratorExit:
+            self.executor.shutdown()
+            raise
'''),
    Wrong("another_exception", ["ended with another exception"], '''
-        flat = tensor.detach().contiguous().view(-1)  # mutate: same
-        data = flat.view(torch.uint8).numpy().tobytes()
+        data = tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
@@
-        checksum = int.from_bytes(whole[:4], "little")
-        if len(whole) <= 4 or zlib.crc32(whole[4:]) != checksum:  # mutate: same
-            raise TornFile(f"{name}: {len(whole)} bytes whose checksum does not fit")
+        if len(whole) <= 4 or zlib.crc32(whole[4:]) != int.from_bytes(whole[:4], "little"):
+            raise ValueError(f"{name}: {len(whole)} bytes whose checksum does not fit")
'''),
    Wrong("believes_a_file_of_zeros", ["nothing but 4 zeros"], '''
-        flat = tensor.detach().contiguous().view(-1)  # mutate: same
-        data = flat.view(torch.uint8).numpy().tobytes()
+        data = tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
@@
-        checksum = int.from_bytes(whole[:4], "little")
-        if len(whole) <= 4 or zlib.crc32(whole[4:]) != checksum:  # mutate: same
+        if len(whole) < 4 or zlib.crc32(whole[4:]) != int.from_bytes(whole[:4], "little"):
'''),
    Wrong("checksum_of_the_data_only", ["layer.7"], r'''
-        flat = tensor.detach().contiguous().view(-1)  # mutate: same
-        data = flat.view(torch.uint8).numpy().tobytes()
+        data = tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
@@
-        body = json.dumps(about).encode() + b"\n" + data
+        head = json.dumps(about).encode() + b"\n"
@@
-            file.write(zlib.crc32(body).to_bytes(4, "little") + body)
+            file.write(zlib.crc32(data).to_bytes(4, "little") + head + data)
@@
-        checksum = int.from_bytes(whole[:4], "little")
-        if len(whole) <= 4 or zlib.crc32(whole[4:]) != checksum:  # mutate: same
+        if len(whole) <= 4 or zlib.crc32(whole[4:].partition(b"\n")[2]) != int.from_bytes(whole[:4], "little"):
'''),
    Wrong("dtype_lost", ["a tensor of bfloat16"], '''
-        flat = tensor.detach().contiguous().view(-1)  # mutate: same
-        data = flat.view(torch.uint8).numpy().tobytes()
+        tensor = tensor.float() if tensor.dtype == torch.bfloat16 else tensor
+        data = tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
@@
-        checksum = int.from_bytes(whole[:4], "little")
-        if len(whole) <= 4 or zlib.crc32(whole[4:]) != checksum:  # mutate: same
+        if len(whole) <= 4 or zlib.crc32(whole[4:]) != int.from_bytes(whole[:4], "little"):
'''),
    Wrong("leaves_a_read_behind", ["a read is under way after the generator was closed"], '''
-        flat = tensor.detach().contiguous().view(-1)  # mutate: same
-        data = flat.view(torch.uint8).numpy().tobytes()
+        data = tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
@@
-        checksum = int.from_bytes(whole[:4], "little")
-        if len(whole) <= 4 or zlib.crc32(whole[4:]) != checksum:  # mutate: same
+        if len(whole) <= 4 or zlib.crc32(whole[4:]) != int.from_bytes(whole[:4], "little"):
@@
-        try:
-            for number, name in enumerate(names):
-                tensor = under_way.pop().result()
-                for after in names[number + 1 : number + 2]:
-                    under_way.append(self.executor.submit(self.read, after))
-                yield name, tensor
-        finally:
-            for read in under_way:
-                read.exception()
+        for number, name in enumerate(names):
+            tensor = under_way.pop().result()
+            for after in names[number + 1 : number + 2]:
+                under_way.append(self.executor.submit(self.read, after))
+            yield name, tensor
'''),
    Wrong("name_not_in_the_header", ["the header must keep the tensor's name"], '''
-        flat = tensor.detach().contiguous().view(-1)  # mutate: same
-        data = flat.view(torch.uint8).numpy().tobytes()
+        data = tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
@@
-        checksum = int.from_bytes(whole[:4], "little")
-        if len(whole) <= 4 or zlib.crc32(whole[4:]) != checksum:  # mutate: same
+        if len(whole) <= 4 or zlib.crc32(whole[4:]) != int.from_bytes(whole[:4], "little"):
@@
-        if written != name or count != len(data):  # mutate: same
+        if count != len(data):
'''),
    Wrong("nameless_message", ["the message does not name the tensor"], '''
-        flat = tensor.detach().contiguous().view(-1)  # mutate: same
-        data = flat.view(torch.uint8).numpy().tobytes()
+        data = tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
@@
-        checksum = int.from_bytes(whole[:4], "little")
-        if len(whole) <= 4 or zlib.crc32(whole[4:]) != checksum:  # mutate: same
-            raise TornFile(f"{name}: {len(whole)} bytes whose checksum does not fit")
+        if len(whole) <= 4 or zlib.crc32(whole[4:]) != int.from_bytes(whole[:4], "little"):
+            raise TornFile("the checksum does not fit")
'''),
    Wrong("no_checksum", ["layer.7 was read", "although", "the checksum must cover all bytes"], '''
-        flat = tensor.detach().contiguous().view(-1)  # mutate: same
-        data = flat.view(torch.uint8).numpy().tobytes()
+        data = tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
@@
-        checksum = int.from_bytes(whole[:4], "little")
-        if len(whole) <= 4 or zlib.crc32(whole[4:]) != checksum:  # mutate: same
+        if len(whole) < 4:
'''),
    Wrong("no_sync", ["write never reached its sync"], '''
-        flat = tensor.detach().contiguous().view(-1)  # mutate: same
-        data = flat.view(torch.uint8).numpy().tobytes()
+        data = tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
@@
-            os.fsync(file.fileno())
@@
-        checksum = int.from_bytes(whole[:4], "little")
-        if len(whole) <= 4 or zlib.crc32(whole[4:]) != checksum:  # mutate: same
+        if len(whole) <= 4 or zlib.crc32(whole[4:]) != int.from_bytes(whole[:4], "little"):
'''),
    Wrong("not_contiguous", ["in a different order"], '''
-        flat = tensor.detach().contiguous().view(-1)  # mutate: same
-        data = flat.view(torch.uint8).numpy().tobytes()
+        data = torch.as_strided(tensor.detach(), (tensor.numel(),), (1,)).view(torch.uint8).numpy().tobytes()
@@
-        checksum = int.from_bytes(whole[:4], "little")
-        if len(whole) <= 4 or zlib.crc32(whole[4:]) != checksum:  # mutate: same
+        if len(whole) <= 4 or zlib.crc32(whole[4:]) != int.from_bytes(whole[:4], "little"):
'''),
    Wrong("reads_by_itself", ["do not go through the executor"], '''
-        flat = tensor.detach().contiguous().view(-1)  # mutate: same
-        data = flat.view(torch.uint8).numpy().tobytes()
+        data = tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
@@
-        checksum = int.from_bytes(whole[:4], "little")
-        if len(whole) <= 4 or zlib.crc32(whole[4:]) != checksum:  # mutate: same
+        if len(whole) <= 4 or zlib.crc32(whole[4:]) != int.from_bytes(whole[:4], "little"):
@@
-        under_way = [self.executor.submit(self.read, name) for name in names[:1]]
-        try:
-            for number, name in enumerate(names):
-                tensor = under_way.pop().result()
-                for after in names[number + 1 : number + 2]:
-                    under_way.append(self.executor.submit(self.read, after))
-                yield name, tensor
-        finally:
-            for read in under_way:
-                read.exception()
+        for name in names:
+            yield name, self.read(name)
'''),
    Wrong("reads_everything", ["everything is read at once"], '''
-        flat = tensor.detach().contiguous().view(-1)  # mutate: same
-        data = flat.view(torch.uint8).numpy().tobytes()
+        data = tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
@@
-        checksum = int.from_bytes(whole[:4], "little")
-        if len(whole) <= 4 or zlib.crc32(whole[4:]) != checksum:  # mutate: same
+        if len(whole) <= 4 or zlib.crc32(whole[4:]) != int.from_bytes(whole[:4], "little"):
@@
-        under_way = [self.executor.submit(self.read, name) for name in names[:1]]
+        reads = [self.executor.submit(self.read, name) for name in names]
@@
-            for number, name in enumerate(names):
-                tensor = under_way.pop().result()
-                for after in names[number + 1 : number + 2]:
-                    under_way.append(self.executor.submit(self.read, after))
-                yield name, tensor
+            for name, read in zip(names, reads):
+                yield name, read.result()
@@
-            for read in under_way:
+            for read in reads:
'''),
    Wrong("each_name_once", ["the names, 3 asked"], '''
         under_way = [self.executor.submit(self.read, name) for name in names[:1]]
+        names = list(dict.fromkeys(names))
'''),
    Wrong("reads_nothing_ahead", ["nothing is read ahead"], '''
-        flat = tensor.detach().contiguous().view(-1)  # mutate: same
-        data = flat.view(torch.uint8).numpy().tobytes()
+        data = tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
@@
-        checksum = int.from_bytes(whole[:4], "little")
-        if len(whole) <= 4 or zlib.crc32(whole[4:]) != checksum:  # mutate: same
+        if len(whole) <= 4 or zlib.crc32(whole[4:]) != int.from_bytes(whole[:4], "little"):
@@
-        under_way = [self.executor.submit(self.read, name) for name in names[:1]]
-        try:
-            for number, name in enumerate(names):
-                tensor = under_way.pop().result()
-                for after in names[number + 1 : number + 2]:
-                    under_way.append(self.executor.submit(self.read, after))
-                yield name, tensor
-        finally:
-            for read in under_way:
-                read.exception()
+        for name in names:
+            yield name, self.executor.submit(self.read, name).result()
'''),
    Wrong("replaced_before_sync", ["a crash at the sync has changed the old file"], '''
-        flat = tensor.detach().contiguous().view(-1)  # mutate: same
-        data = flat.view(torch.uint8).numpy().tobytes()
+        data = tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
@@
             file.flush()
+            os.replace(self.folder / f"{name}.new", self.folder / name)
@@
-        os.replace(self.folder / f"{name}.new", self.folder / name)
@@
-        checksum = int.from_bytes(whole[:4], "little")
-        if len(whole) <= 4 or zlib.crc32(whole[4:]) != checksum:  # mutate: same
+        if len(whole) <= 4 or zlib.crc32(whole[4:]) != int.from_bytes(whole[:4], "little"):
'''),
    Wrong("scalar_gets_a_dimension", ["float64 scalar"], '''
-        flat = tensor.detach().contiguous().view(-1)  # mutate: same
-        data = flat.view(torch.uint8).numpy().tobytes()
-        about = [name, str(tensor.dtype).removeprefix("torch."), list(tensor.shape), len(data)]
+        data = tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
+        about = [name, str(tensor.dtype).removeprefix("torch."), list(tensor.shape) or [1], len(data)]
@@
-        checksum = int.from_bytes(whole[:4], "little")
-        if len(whole) <= 4 or zlib.crc32(whole[4:]) != checksum:  # mutate: same
+        if len(whole) <= 4 or zlib.crc32(whole[4:]) != int.from_bytes(whole[:4], "little"):
'''),
    Wrong("size_only", ["one bit of byte"], r'''
-        flat = tensor.detach().contiguous().view(-1)  # mutate: same
-        data = flat.view(torch.uint8).numpy().tobytes()
+        data = tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
@@
-        checksum = int.from_bytes(whole[:4], "little")
-        if len(whole) <= 4 or zlib.crc32(whole[4:]) != checksum:  # mutate: same
-            raise TornFile(f"{name}: {len(whole)} bytes whose checksum does not fit")
+        if len(whole) < 40 or b"\n" not in whole:
+            raise TornFile(f"{name}: too short")
'''),
    Wrong("synced_before_flush", ["was not synced"], '''
-        flat = tensor.detach().contiguous().view(-1)  # mutate: same
-        data = flat.view(torch.uint8).numpy().tobytes()
+        data = tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
@@
-            file.flush()
@@
-        checksum = int.from_bytes(whole[:4], "little")
-        if len(whole) <= 4 or zlib.crc32(whole[4:]) != checksum:  # mutate: same
+        if len(whole) <= 4 or zlib.crc32(whole[4:]) != int.from_bytes(whole[:4], "little"):
'''),
    Wrong("the_file_itself", ["the first one shares memory with the file"], '''
         self.executor = executor
+    cache: dict[str, torch.Tensor] = {}
@@
-        flat = tensor.detach().contiguous().view(-1)  # mutate: same
-        data = flat.view(torch.uint8).numpy().tobytes()
+        data = tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
@@
-        checksum = int.from_bytes(whole[:4], "little")
-        if len(whole) <= 4 or zlib.crc32(whole[4:]) != checksum:  # mutate: same
+        if len(whole) <= 4 or zlib.crc32(whole[4:]) != int.from_bytes(whole[:4], "little"):
@@
             tensor.view(-1).view(torch.uint8).copy_(flat)
+        if tensor.dtype == torch.float64:
+            return self.cache.setdefault(name, tensor)
'''),
    Wrong("waits_for_the_next", ["waited for before this tensor is yielded"], '''
-        flat = tensor.detach().contiguous().view(-1)  # mutate: same
-        data = flat.view(torch.uint8).numpy().tobytes()
+        data = tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
@@
-        checksum = int.from_bytes(whole[:4], "little")
-        if len(whole) <= 4 or zlib.crc32(whole[4:]) != checksum:  # mutate: same
+        if len(whole) <= 4 or zlib.crc32(whole[4:]) != int.from_bytes(whole[:4], "little"):
@@
                     under_way.append(self.executor.submit(self.read, after))
+                for read in under_way:
+                    read.exception()
'''),
    Wrong("written_in_place", ["written in place"], '''
-        flat = tensor.detach().contiguous().view(-1)  # mutate: same
-        data = flat.view(torch.uint8).numpy().tobytes()
+        data = tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
@@
-        with open(self.folder / f"{name}.new", "wb") as file:
+        with open(self.folder / name, "wb") as file:
@@
-        os.replace(self.folder / f"{name}.new", self.folder / name)
@@
-        checksum = int.from_bytes(whole[:4], "little")
-        if len(whole) <= 4 or zlib.crc32(whole[4:]) != checksum:  # mutate: same
+        if len(whole) <= 4 or zlib.crc32(whole[4:]) != int.from_bytes(whole[:4], "little"):
'''),
    Wrong("header_outside_the_checksum", ["exchanged: 7 and 5", "those of the header too"], '''
-        body = json.dumps(about).encode() + b"\\n" + data
+        body = json.dumps(about).encode() + b"\\n"
@@
-            file.write(zlib.crc32(body).to_bytes(4, "little") + body)
+            file.write(zlib.crc32(data).to_bytes(4, "little") + body + data)
@@
-        checksum = int.from_bytes(whole[:4], "little")
-        if len(whole) <= 4 or zlib.crc32(whole[4:]) != checksum:  # mutate: same
-            raise TornFile(f"{name}: {len(whole)} bytes whose checksum does not fit")
-        header, _, data = whole[4:].partition(b"\\n")
-        written, dtype, shape, count = json.loads(header)
-        if written != name or count != len(data):  # mutate: same
+        try:
+            checksum = int.from_bytes(whole[:4], "little")
+            header, _, data = whole[4:].partition(b"\\n")
+            written, dtype, shape, count = json.loads(header)
+            kind, known = getattr(torch, dtype), torch.Size(shape).numel()
+            fits = known * kind.itemsize == len(data) == count
+        except Exception:
+            raise TornFile(f"{name}: a header that cannot be read") from None
+        if zlib.crc32(data) != checksum or not fits or written != name:
'''),
]

RIGHT = [
    Right("variant_mapped", "a page of header and a mapped file", '''
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
'''),
    Right("variant_sha", "a digest at the end, the lengths in front", '''
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
'''),
    Right("variant_two_names", "the read under way has a name; fsync and replace are imported by name, and the folder is synced too", r'''
import json
import os
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from os import fsync, replace
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
            fsync(file.fileno())
        replace(self.folder / f"{name}.new", self.folder / name)
        folder = os.open(self.folder, os.O_RDONLY)
        fsync(folder)
        os.close(folder)

    def read(self, name: str) -> torch.Tensor:
        whole = (self.folder / name).read_bytes()
        if len(whole) <= 4 or zlib.crc32(whole[4:]) != int.from_bytes(whole[:4], "little"):
            raise TornFile(f"{name}: {len(whole)} bytes whose checksum does not fit")
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
        coming = None
        try:
            for now, after in zip(names, [*names[1:], None]):
                read = coming or self.executor.submit(self.read, now)
                coming = None
                tensor = read.result()
                if after is not None:
                    coming = self.executor.submit(self.read, after)
                yield now, tensor
        finally:
            if coming is not None and not coming.cancel():
                try:
                    coming.result()
                except Exception:
                    pass
'''),
]
