"""Wrong and right answers to `save_sharded`: see `course dev show save_sharded`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("boxes_by_place", ["are nowhere"], '''
-    boxes = [json.dumps(piece.about()) for piece in pieces]
+    boxes = [json.dumps({**piece.about(), "sizes": [], "bytes": 0}) for piece in pieces]
@@
-                stored.append({**json.loads(box), "file": name, "at": file.tell()})  # mutate: same
+                stored.append({**piece.about(), "file": name, "at": file.tell()})
'''),
    Wrong("keeps_two", ["the checkpoint of an earlier step is gone"], '''
         os.replace(path / "manifest.new", path / "manifest.json")  # mutate: same
+        for old in sorted(Path(folder).glob("step-*/manifest.json"))[:-2]:
+            old.unlink()
'''),
    Wrong("agrees_before_the_sync", ["the torn checkpoint counts as complete", "index 0 must hear that every rank has synced"], '''
-        os.fsync(file.fileno())
-    stored = sum(share(stored, group), [])  # it returns when all have synced
+        every = share(stored, group)
+        if group.index:
+            os.fsync(file.fileno())
+    stored = sum(every, [])
@@
     if group.index == 0:  # mutate: same
+        with open(path / name, "rb+") as file:
+            os.fsync(file.fileno())
'''),
    Wrong("barrier_of_index_0", ["deadlock"], '''
-    barrier(group)
+        barrier(group)
+        barrier(group)
+    else:
+        barrier(group)
'''),
    Wrong("bfloat16_as_float32", ["they are float32", "and the manifest says bfloat16"], '''
                 flat = piece.tensor.contiguous().view(-1)
+                if flat.dtype == torch.bfloat16:
+                    flat = flat.float()
'''),
    Wrong("each_rank_in_its_own_order", ["elements of"], '''
-    for box in sorted({box for theirs in everyone for box in theirs}):  # mutate: same
+    for box in dict.fromkeys(boxes + sum(everyone, [])):
'''),
    Wrong("counts_bytes_that_were_left", ["the largest file"], '''
     boxes = [json.dumps(piece.about()) for piece in pieces]
+    names = [path / f"rank-{index}.bin" for index in range(group.size)]
+    left = [name.stat().st_size if name.exists() else 0 for name in names]
@@
-    load, writer = [0] * group.size, {}  # mutate: same
+    load, writer = left, {}
'''),
    Wrong("counts_bytes_of_the_save_before", ["the largest file"], '''
-    load, writer = [0] * group.size, {}  # mutate: same
+    load, writer = save_sharded.__dict__.setdefault("load", [0] * group.size), {}
'''),
    Wrong("everything_in_memory", ["copies of many pieces are in memory at once"], '''
     with open(path / name, "wb") as file:
+        data = b""
@@
-                stored.append({**json.loads(box), "file": name, "at": file.tell()})  # mutate: same
+                stored.append({**json.loads(box), "file": name, "at": len(data)})
@@
-                file.write(flat.view(torch.uint8).numpy())
+                data += flat.view(torch.uint8).numpy().tobytes()
+        file.write(data)
'''),
    Wrong("gathers_on_rank_0", ["bytes sent in a save", "gathered on one rank"], '''
 from course_lib.comm import Group, all_gather, barrier
+from course_lib.comm import broadcast
@@
-    boxes = [json.dumps(piece.about()) for piece in pieces]
-    everyone = share(boxes, group)  # mutate: same
-    load, writer = [0] * group.size, {}  # mutate: same
-    for box in sorted({box for theirs in everyone for box in theirs}):  # mutate: same
-        holders = [index for index in range(group.size) if box in everyone[index]]
-        writer[box] = min(holders, key=lambda index: load[index])
-        load[writer[box]] += json.loads(box)["bytes"]
-    name, stored = f"rank-{group.index}.bin", []
-    with open(path / name, "wb") as file:
-        for box, piece in zip(boxes, pieces, strict=True):  # mutate: same
-            if writer[box] == group.index:
-                stored.append({**json.loads(box), "file": name, "at": file.tell()})  # mutate: same
-                flat = piece.tensor.contiguous().view(-1)
-                file.write(flat.view(torch.uint8).numpy())
-        file.flush()
-        os.fsync(file.fileno())
-    stored = sum(share(stored, group), [])  # it returns when all have synced
+    name = "rank-0.bin"
+    boxes = share([piece.about() for piece in pieces], group)
+    stored: dict[str, Any] = {}
+    contents = b""
+    for index, theirs in enumerate(boxes):
+        for number, box in enumerate(theirs):
+            values = torch.empty(box["bytes"], dtype=torch.uint8)
+            if index == group.index:
+                flat = pieces[number].tensor.detach().contiguous().view(-1)
+                values.copy_(flat.view(torch.uint8))
+            broadcast(values, index, group)
+            if json.dumps(box) not in stored:
+                stored[json.dumps(box)] = {**box, "file": name, "at": len(contents)}
+                contents += values.numpy().tobytes()
@@
     if group.index == 0:  # mutate: same
+        with open(path / name, "wb") as file:
+            file.write(contents)
+            file.flush()
+            os.fsync(file.fileno())
@@
-            json.dump({"step": step, "pieces": stored}, file)  # mutate: same
+            json.dump({"step": step, "pieces": list(stored.values())}, file)
'''),
    Wrong("manifest_in_place", ["the torn checkpoint counts as complete", "it was written in place"], '''
-        with open(path / "manifest.new", "w") as file:  # mutate: same
+        with open(path / "manifest.json", "w") as file:
@@
-        os.replace(path / "manifest.new", path / "manifest.json")  # mutate: same
'''),
    Wrong("manifest_not_synced", ["manifest.json was not synced"], '''
-            file.flush()  # mutate: same
-            os.fsync(file.fileno())  # mutate: same
'''),
    Wrong("no_sync", ["rank-0.bin was not synced", "after a power cut its name would lead to nothing"], '''
-        os.fsync(file.fileno())
'''),
    Wrong("not_contiguous", ["its values lie column by column"], '''
-                flat = piece.tensor.contiguous().view(-1)
+                values = piece.tensor.detach()
+                flat = torch.as_strided(values, (values.numel(),), (1,))
'''),
    Wrong("offset_after_the_write", ["`at` counts bytes from the beginning of the file"], '''
-                stored.append({**json.loads(box), "file": name, "at": file.tell()})  # mutate: same
@@
                 file.write(flat.view(torch.uint8).numpy())
+                stored.append({**json.loads(box), "file": name, "at": file.tell()})
'''),
    Wrong("offsets_in_elements", ["is `at` the place where its first byte was written?"], '''
-                stored.append({**json.loads(box), "file": name, "at": file.tell()})  # mutate: same
+                stored.append({**json.loads(box), "file": name, "at": file.tell() // piece.tensor.itemsize})
'''),
    Wrong("one_folder_for_all_steps", ["after the save", "there is no step-00000020/manifest.json"], '''
-    path = start_step(folder, step)  # mutate: same
+    path = start_step(folder, 0)
'''),
    Wrong("published_before_all_have_written", ["the torn checkpoint counts as complete", "index 0 must hear that every rank has synced"], '''
     name, stored = f"rank-{group.index}.bin", []
+    if group.index == 0:
+        ends = [0] * group.size
+        for theirs, index in ((theirs, index) for index, theirs in enumerate(everyone)):
+            for box in theirs:
+                if writer[box] == index:
+                    at = {"file": f"rank-{index}.bin", "at": ends[index]}
+                    stored.append({**json.loads(box), **at})
+                    ends[index] += json.loads(box)["bytes"]
+        with open(path / "manifest.new", "w") as file:
+            json.dump({"step": step, "pieces": stored}, file)
+            file.flush()
+            os.fsync(file.fileno())
+        os.replace(path / "manifest.new", path / "manifest.json")
@@
-    stored = sum(share(stored, group), [])  # it returns when all have synced
-    if group.index == 0:  # mutate: same
-        with open(path / "manifest.new", "w") as file:  # mutate: same
-            json.dump({"step": step, "pieces": stored}, file)  # mutate: same
-            file.flush()  # mutate: same
-            os.fsync(file.fileno())  # mutate: same
-        os.replace(path / "manifest.new", path / "manifest.json")  # mutate: same
'''),
    Wrong("publishes_what_it_has", ["are nowhere", "a box that nobody writes is lost"], '''
-    stored = sum(share(stored, group), [])  # it returns when all have synced
+    share(stored, group)
'''),
    Wrong("removes_the_old_one_first", ["there is no complete checkpoint any more", "the old one was removed before"], '''
     path = start_step(folder, step)  # mutate: same
+    for old in Path(folder).glob("step-*/manifest.json"):
+        if group.index == 0:
+            old.unlink()
'''),
    Wrong("replicas_by_the_first", ["the largest file", "one rank writes what all have"], '''
-        writer[box] = min(holders, key=lambda index: load[index])
+        writer[box] = holders[0]
'''),
    Wrong("replicas_everywhere", ["replicas are written by every rank"], '''
-            if writer[box] == group.index:
+            if group.index in range(group.size):
'''),
    Wrong("replicas_in_turn", ["the largest file", "count bytes and not boxes"], '''
-        load[writer[box]] += json.loads(box)["bytes"]
+        load[writer[box]] += 1
'''),
    Wrong("returns_early", ["save_sharded returned before the checkpoint was complete"], '''
-    barrier(group)
'''),
    Wrong("sync_before_flush", ["Python still holds a part of it"], '''
                 file.write(flat.view(torch.uint8).numpy())
+        os.fsync(file.fileno())
@@
-        os.fsync(file.fileno())
'''),
    Wrong("touches_a_complete_step", ["a complete checkpoint was touched"], '''
-    path = start_step(folder, step)  # mutate: same
+    path = Path(folder) / f"step-{step:08}"
+    path.mkdir(exist_ok=True)
'''),
    Wrong("file_of_the_global_rank", ["a file that is not one of rank-0.bin"], '''
-    name, stored = f"rank-{group.index}.bin", []
+    name, stored = f"rank-{group.rank}.bin", []
'''),
    Wrong("boxes_told_apart_by_offsets", ["elements of late are nowhere"], '''
-    boxes = [json.dumps(piece.about()) for piece in pieces]
+    boxes = [json.dumps([piece.name, piece.offsets]) for piece in pieces]
@@
-        writer[box] = min(holders, key=lambda index: load[index])
-        load[writer[box]] += json.loads(box)["bytes"]
+        writer[box] = holders[0]
@@
-                stored.append({**json.loads(box), "file": name, "at": file.tell()})  # mutate: same
+                stored.append({**piece.about(), "file": name, "at": file.tell()})
'''),
]

RIGHT = [
    Right("variant_packed_first", "replicas of few holders first; a part at a time in blocks of 4 KiB; empty boxes left out", '''
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from course_lib.comm import Group, all_gather, barrier


class Piece(NamedTuple):
    name: str
    shape: tuple[int, ...]
    offsets: tuple[int, ...]
    tensor: torch.Tensor

    def about(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "shape": list(self.shape),
            "dtype": str(self.tensor.dtype).removeprefix("torch."),
            "offsets": list(self.offsets),
            "sizes": list(self.tensor.shape),
            "bytes": self.tensor.nbytes,
        }


def start_step(folder: str, step: int) -> Path:
    path = Path(folder) / f"step-{step:08}"
    if (path / "manifest.json").exists():
        raise FileExistsError(f"step {step} has been saved: {path}")
    path.mkdir(exist_ok=True)
    return path


def share(values: list[Any], group: Group) -> list[list[Any]]:
    text = torch.frombuffer(bytearray(json.dumps(values).encode()), dtype=torch.uint8)
    sizes = torch.empty(group.size, dtype=torch.int64)
    all_gather(sizes, torch.tensor([len(text)]), group)
    mine = torch.zeros(int(sizes.max()), dtype=torch.uint8)
    mine[: len(text)] = text
    whole = torch.empty(group.size * len(mine), dtype=torch.uint8)
    all_gather(whole, mine, group)
    texts = zip(whole.view(group.size, -1), sizes.tolist(), strict=True)
    return [json.loads(bytes(row[:size].tolist())) for row, size in texts]


def save_sharded(pieces: Sequence[Piece], folder: str, group: Group, step: int) -> None:
    path = start_step(folder, step)
    boxes = [json.dumps(piece.about()) for piece in pieces]
    everyone = share(boxes, group)
    load, writer = [0] * group.size, {}
    for box in sorted({box for theirs in everyone for box in theirs}, key=lambda box: (len(box), box)):
        holders = [index for index in range(group.size) if box in everyone[index]]
        writer[box] = min(holders, key=lambda index: load[index])
        load[writer[box]] += json.loads(box)["bytes"]
    name, stored = f"rank-{group.index}.bin", []
    with open(path / name, "wb") as file:
        for box, piece in zip(boxes, pieces, strict=True):
            if writer[box] == group.index and piece.tensor.numel():
                stored.append({**json.loads(box), "file": name, "at": file.tell()})
                flat = piece.tensor.contiguous().view(-1)
                data = flat.view(torch.uint8).numpy()
                for start in range(0, len(data), 4096):
                    file.write(data[start : start + 4096])
        file.flush()
        os.fsync(file.fileno())
    stored = sum(share(stored, group), [])
    if group.index == 0:
        with open(path / "manifest.new", "w") as file:
            json.dump({"step": step, "pieces": stored}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(path / "manifest.new", path / "manifest.json")
    barrier(group)
'''),
    Right("variant_planned_by_one", "index 0 alone makes the plan, and tells it; tobytes; pathlib's replace", '''
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from course_lib.comm import Group, all_gather, barrier


class Piece(NamedTuple):
    name: str
    shape: tuple[int, ...]
    offsets: tuple[int, ...]
    tensor: torch.Tensor

    def about(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "shape": list(self.shape),
            "dtype": str(self.tensor.dtype).removeprefix("torch."),
            "offsets": list(self.offsets),
            "sizes": list(self.tensor.shape),
            "bytes": self.tensor.nbytes,
        }


def start_step(folder: str, step: int) -> Path:
    path = Path(folder) / f"step-{step:08}"
    if (path / "manifest.json").exists():
        raise FileExistsError(f"step {step} has been saved: {path}")
    path.mkdir(exist_ok=True)
    return path


def share(values: list[Any], group: Group) -> list[list[Any]]:
    text = torch.frombuffer(bytearray(json.dumps(values).encode()), dtype=torch.uint8)
    sizes = torch.empty(group.size, dtype=torch.int64)
    all_gather(sizes, torch.tensor([len(text)]), group)
    mine = torch.zeros(int(sizes.max()), dtype=torch.uint8)
    mine[: len(text)] = text
    whole = torch.empty(group.size * len(mine), dtype=torch.uint8)
    all_gather(whole, mine, group)
    texts = zip(whole.view(group.size, -1), sizes.tolist(), strict=True)
    return [json.loads(bytes(row[:size].tolist())) for row, size in texts]


def save_sharded(pieces: Sequence[Piece], folder: str, group: Group, step: int) -> None:
    path = start_step(folder, step)
    everyone = share([piece.about() for piece in pieces], group)
    plan: list[list[Any]] = []
    if group.index == 0:
        done, load = [], [0] * group.size
        for count in range(max(map(len, everyone))):
            for theirs in everyone:
                for box in theirs[count : count + 1]:
                    if box in done:
                        continue
                    done.append(box)
                    holders = [index for index in range(group.size) if box in everyone[index]]
                    best = sorted(holders, key=lambda index: load[index])[0]
                    load[best] += box["bytes"]
                    plan.append([best, everyone[best].index(box)])
    plan = share(plan, group)[0]
    records = []
    with (path / f"rank-{group.index}.bin").open("wb") as file:
        for number in (number for rank, number in plan if rank == group.index):
            record = everyone[group.index][number]
            record["file"], record["at"] = f"rank-{group.index}.bin", file.tell()
            records.append(record)
            data = pieces[number].tensor.detach().contiguous()
            file.write(data.flatten().view(torch.uint8).numpy().tobytes())
        file.flush()
        os.fsync(file)
    texts = share([json.dumps(record) for record in records], group)
    if not group.index:
        parts = [json.loads(text) for theirs in texts for text in theirs]
        other = path / "unfinished"
        with other.open("w") as file:
            file.write(json.dumps({"step": step, "pieces": parts}, indent=1))
            file.flush()
            os.fsync(file)
        other.replace(path / "manifest.json")
    share([], group)
'''),
    Right("variant_renames_the_folder", "everything in an unfinished folder, which is renamed; os.write and a memoryview", '''
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from course_lib.comm import Group, all_gather, barrier


class Piece(NamedTuple):
    name: str
    shape: tuple[int, ...]
    offsets: tuple[int, ...]
    tensor: torch.Tensor

    def about(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "shape": list(self.shape),
            "dtype": str(self.tensor.dtype).removeprefix("torch."),
            "offsets": list(self.offsets),
            "sizes": list(self.tensor.shape),
            "bytes": self.tensor.nbytes,
        }


def start_step(folder: str, step: int) -> Path:
    path = Path(folder) / f"step-{step:08}"
    if (path / "manifest.json").exists():
        raise FileExistsError(f"step {step} has been saved: {path}")
    path.mkdir(exist_ok=True)
    return path


def share(values: list[Any], group: Group) -> list[list[Any]]:
    text = torch.frombuffer(bytearray(json.dumps(values).encode()), dtype=torch.uint8)
    sizes = torch.empty(group.size, dtype=torch.int64)
    all_gather(sizes, torch.tensor([len(text)]), group)
    mine = torch.zeros(int(sizes.max()), dtype=torch.uint8)
    mine[: len(text)] = text
    whole = torch.empty(group.size * len(mine), dtype=torch.uint8)
    all_gather(whole, mine, group)
    texts = zip(whole.view(group.size, -1), sizes.tolist(), strict=True)
    return [json.loads(bytes(row[:size].tolist())) for row, size in texts]


def save_sharded(pieces: Sequence[Piece], folder: str, group: Group, step: int) -> None:
    path = start_step(folder, step)
    unfinished = Path(f"{path}.unfinished")
    unfinished.mkdir(exist_ok=True)
    plan: dict[str, list[int]] = {}
    for index, theirs in enumerate(share([piece.about() for piece in pieces], group)):
        for box in theirs:
            plan.setdefault(json.dumps(box), []).append(index)
    load = [0] * group.size
    mine = []
    for box in sorted(plan, key=lambda box: (len(plan[box]), -json.loads(box)["bytes"], box)):
        writer = min(plan[box], key=load.__getitem__)
        load[writer] += json.loads(box)["bytes"]
        if writer == group.index:
            mine.append(box)
    parts, at = [], 0
    descriptor = os.open(unfinished / f"rank-{group.index}.bin", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for piece in pieces:
        about = piece.about()
        if json.dumps(about) not in mine:
            continue
        flat = piece.tensor.detach().clone(memory_format=torch.contiguous_format).reshape(-1)
        left = memoryview(flat.view(torch.uint8).numpy())
        while len(left):
            left = left[os.write(descriptor, left) :]
        parts.append({**about, "file": f"rank-{group.index}.bin", "at": at})
        at += about["bytes"]
    os.fdatasync(descriptor) if hasattr(os, "fdatasync") else os.fsync(descriptor)
    os.close(descriptor)
    everyone = share(parts, group)
    if group.index == 0:
        with open(unfinished / "manifest.json", "wb", buffering=0) as file:
            file.write(json.dumps({"step": step, "pieces": sum(everyone, [])}).encode())
            os.fsync(file.fileno())
        for left_over in path.iterdir():
            left_over.unlink()
        unfinished.rename(path)
        handle = os.open(folder, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)
    barrier(group)
'''),
]
