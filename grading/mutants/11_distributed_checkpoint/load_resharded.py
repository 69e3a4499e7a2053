"""Wrong and right answers to `load_resharded`: see `course dev show load_resharded`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("name_as_a_key", ["a KeyError is no ValueError"], '''
-        if known.get(piece.name) != asked:
+        if known[piece.name] != asked:
'''),
    Wrong("pads_vectors_alone", ["rows at", "set it to 0"], '''
-        piece.tensor.detach().zero_()
+        if len(piece.shape) == 1:
+            piece.tensor.detach().zero_()
'''),
    Wrong("as_many_elements_fit", ["with as many elements was accepted"], '''
-        if known.get(piece.name) != asked:
+        shape, dtype = known.get(piece.name, ([], ""))
+        if piece.name not in known or (numpy.prod(shape), dtype) != (numpy.prod(asked[0]), asked[1]):
'''),
    Wrong("as_many_bytes_fit", ["with as many bytes was accepted"], '''
-        if known.get(piece.name) != asked:
+        shape, dtype = known.get(piece.name, ([], "int8"))
+        if shape != asked[0] or getattr(torch, dtype).itemsize != piece.tensor.itemsize:
'''),
    Wrong("freezes", ["needs none after the load"], '''
-        piece.tensor.detach().zero_()
+        piece.tensor.requires_grad_(False).zero_()
'''),
    Wrong("padding_is_not_checked", ["padding alone, was accepted"], '''
-        if known.get(piece.name) != asked:
+        inside = all(map(operator.lt, piece.offsets, piece.shape)) or piece.name not in known
+        if inside and known.get(piece.name) != asked:
'''),
    Wrong("sends_all_steps", ["more than the step is sent"], '''
     broadcast(newest, 0, group)
+    broadcast(torch.zeros(64, dtype=torch.int64), 0, group)
'''),
    Wrong("newest_by_date", ["this is the oldest"], '''
-    newest = torch.tensor(max(complete_steps(folder), default=-1))  # mutate: same
+    dates = {(Path(folder) / f"step-{s:08}").stat().st_mtime_ns: s for s in complete_steps(folder)}
+    newest = torch.tensor(dates[max(dates)] if dates else -1)
'''),
    Wrong("casts_silently", ["a tensor of another dtype was accepted"], '''
-        if known.get(piece.name) != asked:
+        if piece.name not in known or known[piece.name][0] != asked[0]:
@@
-            values = torch.from_numpy(data).view(piece.tensor.dtype).view(part["sizes"])
+            values = torch.from_numpy(data).view(getattr(torch, part["dtype"])).view(part["sizes"])
'''),
    Wrong("changes_before_it_checks", ["another tensor was changed all the same"], '''
             raise ValueError(f"{piece.name} is {known.get(piece.name)} in {path}, not {asked}")
-    for piece in wanted:
'''),
    Wrong("columns_as_rows", ["values of the whole row"], '''
-            target.copy_(values[slices(first, last, part["offsets"])])
+            source = values[slices(first, last, part["offsets"])]
+            if source.dim() == 2 and source.numel():
+                start = values.stride(0) * (first[0] - part["offsets"][0]) + first[1] - part["offsets"][1]
+                source = values.flatten()[start : start + source.numel()]
+                source = torch.nn.functional.pad(source, (0, target.numel() - len(source)))
+            target.copy_(source.view(target.shape))
'''),
    Wrong("contiguous_memory", ["its values are in another order"], '''
-            target = piece.tensor.detach()[slices(first, last, piece.offsets)]
+            flat = piece.tensor.detach()
+            flat = torch.as_strided(flat, (flat.numel(),), (1,)).view(flat.shape)
+            target = flat[slices(first, last, piece.offsets)]
'''),
    Wrong("each_rank_looks", ["each rank looked for itself"], '''
-    broadcast(newest, 0, group)
'''),
    Wrong("empty_piece_is_refused", ["ValueError", "few"], '''
-        if known.get(piece.name) != asked:
+        if known.get(piece.name) != asked or not piece.tensor.numel():
'''),
    Wrong("first_box_only", ["a part of it is zero"], '''
             target.copy_(values[slices(first, last, part["offsets"])])
+            break
'''),
    Wrong("missing_is_skipped", ["a tensor that was not saved was accepted"], '''
-        if known.get(piece.name) != asked:
+        if piece.name in known and known[piece.name] != asked:
'''),
    Wrong("moments_by_index", ["these are the values of", "find tensors by name"], '''
             raise ValueError(f"{piece.name} is {known.get(piece.name)} in {path}, not {asked}")
+    moments = [name for name in known if name.endswith("exp_avg")]
+    number = {piece.name: 0 for piece in wanted}
+    for piece in (piece for piece in wanted if piece.name.endswith("exp_avg")):
+        number[piece.name] = len([n for n in number.values() if n])  + 1
@@
     for piece in wanted:
+        name = piece.name
+        if number[name] and len(moments) == max(number.values()):
+            name = moments[number[name] - 1]
         piece.tensor.detach().zero_()
@@
-        for part in (part for part in stored if part["name"] == piece.name):
+        for part in (part for part in stored if part["name"] == name):
'''),
    Wrong("needs_a_gradient", ["leaf Variable that requires grad"], '''
-        piece.tensor.detach().zero_()
+        piece.tensor.zero_()
'''),
    Wrong("newest_folder", ["manifest.json"], '''
-    newest = torch.tensor(max(complete_steps(folder), default=-1))  # mutate: same
+    newest = torch.tensor(max((int(p.name[5:]) for p in Path(folder).glob("step-*")), default=-1))
'''),
    Wrong("offset_in_elements", ["from the place `at`"], '''
-            data = numpy.memmap(file, numpy.uint8, "c", part["at"], (part["bytes"],))
+            data = numpy.memmap(file, numpy.uint8, "c", part["at"] // piece.tensor.itemsize, (part["bytes"],))
'''),
    Wrong("one_reads_for_all", ["bytes sent", "values are sent"], '''
             raise ValueError(f"{piece.name} is {known.get(piece.name)} in {path}, not {asked}")
+    names = sorted(known)
+    wholes = {}
+    for name in names:
+        shape, dtype = known[name]
+        whole = torch.zeros(shape, dtype=getattr(torch, dtype))
+        for part in (part for part in stored if part["name"] == name and group.index == 0):
+            file = path / part["file"]
+            if file.stat().st_size < part["at"] + part["bytes"]:
+                continue
+            data = numpy.memmap(file, numpy.uint8, "c", part["at"], (part["bytes"],))
+            values = torch.from_numpy(data).view(whole.dtype).view(part["sizes"])
+            whole[slices(part["offsets"], end(part["offsets"], part["sizes"]), [0] * whole.dim())] = values
+        broadcast(whole, 0, group)
+        wholes[name] = whole
@@
-            data = numpy.memmap(file, numpy.uint8, "c", part["at"], (part["bytes"],))
-            values = torch.from_numpy(data).view(piece.tensor.dtype).view(part["sizes"])
@@
-            target.copy_(values[slices(first, last, part["offsets"])])
+            target.copy_(wholes[piece.name][slices(first, last, [0] * len(first))])
'''),
    Wrong("only_index_0_says_it", ["deadlock"], '''
-    broadcast(newest, 0, group)
+    if group.index:
+        broadcast(newest, 0, group)
'''),
    Wrong("padding_is_data", ["padding was loaded as data"], '''
             target.copy_(values[slices(first, last, part["offsets"])])
+            rest = piece.offsets[0] + len(piece.tensor) - piece.shape[0] if piece.shape else 0
+            if len(piece.shape) == 1 and rest > 0 and last[0] == piece.shape[0]:
+                itemsize = piece.tensor.itemsize
+                after = file.read_bytes()[part["at"] + part["bytes"] :][: rest * itemsize]
+                count = len(after) // itemsize
+                more = torch.frombuffer(bytearray(after[: count * itemsize]), dtype=piece.tensor.dtype)
+                piece.tensor.detach()[-rest:][:count] = more
'''),
    Wrong("padding_is_left", ["it was left as it was", "set it to 0"], '''
-        piece.tensor.detach().zero_()
'''),
    Wrong("padding_is_refused", ["exception", "outside of its tensor"], '''
-        piece.tensor.detach().zero_()
+        if any(a > b for a, b in zip(end(piece.offsets, piece.tensor.shape), piece.shape)):
+            raise ValueError(f"{piece.name}: {piece.offsets} is outside of its tensor")
'''),
    Wrong("raises_before_it_tells", ["deadlock"], '''
-    broadcast(newest, 0, group)
@@
         raise FileNotFoundError(f"no complete checkpoint in {folder}")  # mutate: same
+    broadcast(newest, 0, group)
'''),
    Wrong("reads_row_after_row", ["everything is read", "and most of it thrown away"], '''
-            data = numpy.memmap(file, numpy.uint8, "c", part["at"], (part["bytes"],))
-            values = torch.from_numpy(data).view(piece.tensor.dtype).view(part["sizes"])
+            row = part["bytes"] // (part["sizes"] or [1])[0]
@@
-            target.copy_(values[slices(first, last, part["offsets"])])
+            place = slices(first, last, part["offsets"])
+            with open(file, "rb") as opened:
+                opened.seek(part["at"])
+                for number in range((part["sizes"] or [1])[0]):
+                    flat = torch.frombuffer(bytearray(opened.read(row)), dtype=piece.tensor.dtype)
+                    values = flat.view(part["sizes"][1:])
+                    if not place:
+                        target.copy_(values)
+                    elif place[0].start <= number < place[0].stop:
+                        target[number - place[0].start] = values[place[1:]]
'''),
    Wrong("reads_whole_boxes", ["a whole box or a whole file is in memory"], '''
-            data = numpy.memmap(file, numpy.uint8, "c", part["at"], (part["bytes"],))
+            data = numpy.fromfile(file, numpy.uint8, part["bytes"], offset=part["at"])
'''),
    Wrong("reads_whole_files", ["a whole box or a whole file is in memory"], '''
-            data = numpy.memmap(file, numpy.uint8, "c", part["at"], (part["bytes"],))
+            data = numpy.frombuffer(bytearray(file.read_bytes()), numpy.uint8, part["bytes"], part["at"])
'''),
    Wrong("replaces_the_tensor", ["what was in the tensor before"], '''
-        piece.tensor.detach().zero_()
@@
-            target.copy_(values[slices(first, last, part["offsets"])])
+            target = values[slices(first, last, part["offsets"])].clone()
'''),
    Wrong("same_layout_only", ["no saved box was found for it"], '''
                 continue
+            if list(piece.offsets) != part["offsets"] or list(piece.tensor.shape) != part["sizes"]:
+                continue
'''),
    Wrong("shape_is_not_compared", ["a tensor of another shape was accepted"], '''
-        if known.get(piece.name) != asked:
+        if piece.name not in known or known[piece.name][1] != asked[1]:
'''),
    Wrong("takes_the_oldest", ["this is the oldest"], '''
-    newest = torch.tensor(max(complete_steps(folder), default=-1))  # mutate: same
+    newest = torch.tensor(min(complete_steps(folder), default=-1))
'''),
    Wrong("truncated_is_accepted", ["a file that was cut short was accepted"], '''
-                raise ValueError(f"{file} is too short for {piece.name}")
-            data = numpy.memmap(file, numpy.uint8, "c", part["at"], (part["bytes"],))
+                part = {**part, "bytes": 0}
+            data = numpy.zeros(sum(part["sizes"]) * 0 + int(numpy.prod(part["sizes"], dtype=int)) * piece.tensor.itemsize, numpy.uint8)
+            if part["bytes"]:
+                data = numpy.memmap(file, numpy.uint8, "c", part["at"], (part["bytes"],))
'''),
    Wrong("truncated_without_a_name", ["the message does not name it", "rank-1.bin in it"], '''
-            if file.stat().st_size < part["at"] + part["bytes"]:
-                raise ValueError(f"{file} is too short for {piece.name}")
'''),
    Wrong("size_without_the_place", ["a file that was cut short"], '''
-            if file.stat().st_size < part["at"] + part["bytes"]:
+            if file.stat().st_size < part["bytes"]:
'''),
    Wrong("step_in_float32", ["it went through float32"], '''
-    newest = torch.tensor(max(complete_steps(folder), default=-1))  # mutate: same
+    newest = torch.tensor(float(max(complete_steps(folder), default=-1)))
'''),
    Wrong("step_0_is_none", ["Step 0 is a step as well"], '''
-    newest = torch.tensor(max(complete_steps(folder), default=-1))  # mutate: same
+    newest = torch.tensor(max(complete_steps(folder), default=0))
@@
-    if newest < 0:  # mutate: same
+    if not newest:
'''),
]

RIGHT = [
    Right("variant_mmap", "mmap of the whole file; a copy of the stretch", '''
import json
import mmap
import operator
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy
import torch

from course_lib.comm import Group, broadcast


class Piece(NamedTuple):
    name: str
    shape: tuple[int, ...]
    offsets: tuple[int, ...]
    tensor: torch.Tensor


def complete_steps(folder: str) -> list[int]:
    folders = [path.parent for path in Path(folder).glob("step-*/manifest.json")]
    return sorted(int(path.name.removeprefix("step-")) for path in folders)


def end(offsets: Sequence[int], sizes: Sequence[int]) -> list[int]:
    return [offset + size for offset, size in zip(offsets, sizes, strict=True)]


def slices(first: Sequence[int], last: Sequence[int], offsets: Sequence[int]) -> tuple[slice, ...]:
    places = zip(first, last, offsets, strict=True)
    return tuple(slice(start - offset, stop - offset) for start, stop, offset in places)


def load_resharded(folder: str, wanted: Sequence[Piece], group: Group) -> int:
    newest = torch.tensor(max(complete_steps(folder), default=-1))
    broadcast(newest, 0, group)
    if newest < 0:
        raise FileNotFoundError(f"no complete checkpoint in {folder}")
    path = Path(folder) / f"step-{int(newest):08}"
    stored = json.loads((path / "manifest.json").read_text())["pieces"]
    known = {part["name"]: (part["shape"], part["dtype"]) for part in stored}
    for piece in wanted:
        asked = list(piece.shape), str(piece.tensor.dtype).removeprefix("torch.")
        if piece.name not in known or known[piece.name] != asked:
            raise ValueError(f"{piece.name} is {known.get(piece.name)} in {path}, not {asked}")
    for piece in wanted:
        piece.tensor.detach().zero_()
        for part in (part for part in stored if part["name"] == piece.name):
            ends = end(part["offsets"], part["sizes"]), end(piece.offsets, piece.tensor.shape)
            first = list(map(max, part["offsets"], piece.offsets))
            last = list(map(min, *ends))
            if any(size <= 0 for size in map(operator.sub, last, first)):
                continue
            file = path / part["file"]
            if file.stat().st_size < part["at"] + part["bytes"]:
                raise ValueError(f"{file} is too short for {piece.name}")
            with open(file, "rb") as opened:
                mapped = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_COPY)
            data = numpy.frombuffer(mapped, numpy.uint8, part["bytes"], part["at"])
            values = torch.from_numpy(data).view(piece.tensor.dtype).view(part["sizes"])
            target = piece.tensor.detach()[slices(first, last, piece.offsets)]
            target.copy_(values[slices(first, last, part["offsets"])].clone())
    return int(newest)
'''),
    Right("variant_pread", "os.pread of whole stretches of rows; the step as text from index 0", '''
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from course_lib.comm import Group, broadcast


class Piece(NamedTuple):
    name: str
    shape: tuple[int, ...]
    offsets: tuple[int, ...]
    tensor: torch.Tensor


def complete_steps(folder: str) -> list[int]:
    folders = [path.parent for path in Path(folder).glob("step-*/manifest.json")]
    return sorted(int(path.name.removeprefix("step-")) for path in folders)


def end(offsets: Sequence[int], sizes: Sequence[int]) -> list[int]:
    return [offset + size for offset, size in zip(offsets, sizes, strict=True)]


def slices(first: Sequence[int], last: Sequence[int], offsets: Sequence[int]) -> tuple[slice, ...]:
    places = zip(first, last, offsets, strict=True)
    return tuple(slice(start - offset, stop - offset) for start, stop, offset in places)


def load_resharded(folder: str, wanted: Sequence[Piece], group: Group) -> int:
    steps = complete_steps(folder) if group.index == 0 else []
    newest = torch.tensor([steps[-1] if steps else -1, len(steps)])
    broadcast(newest, 0, group)
    step, count = newest.tolist()
    if not count:
        raise FileNotFoundError(f"{folder} has no complete checkpoint")
    path = Path(folder) / f"step-{step:08}"
    manifest = json.loads((path / "manifest.json").read_bytes())
    for name, shape, _, tensor in wanted:
        there = [part for part in manifest["pieces"] if part["name"] == name]
        if not there or there[0]["shape"] != list(shape):
            raise ValueError(f"{name} {shape}: {there[:1]}")
        if getattr(torch, there[0]["dtype"]) != tensor.dtype:
            raise ValueError(f"{name} {tensor.dtype}: {there[:1]}")
    for name, shape, offsets, tensor in wanted:
        buffer = torch.zeros(tensor.shape, dtype=tensor.dtype)
        for part in manifest["pieces"]:
            if part["name"] == name:
                _read(path / part["file"], part, offsets, buffer)
        tensor.data.copy_(buffer)
    return step


def _read(path: Path, part: dict, offsets: Sequence[int], buffer: torch.Tensor) -> None:
    if not part["sizes"]:
        values = _values(path, part["at"], 1, buffer.dtype)
        buffer.copy_(values[0])
        return
    first = [max(a, b) for a, b in zip(part["offsets"], offsets)]
    last = [min(a, b) for a, b in zip(end(part["offsets"], part["sizes"]), end(offsets, buffer.shape))]
    if any(a >= b for a, b in zip(first, last)):
        return
    row = part["bytes"] // part["sizes"][0]
    for number in range(first[0], last[0]):
        at = part["at"] + (number - part["offsets"][0]) * row
        inner = {**part, "sizes": part["sizes"][1:], "offsets": part["offsets"][1:], "at": at, "bytes": row}
        if len(first) == 1:
            size = buffer.itemsize
            values = _values(path, at, (last[0] - first[0]) * size // size, buffer.dtype)
            buffer[first[0] - offsets[0] : last[0] - offsets[0]] = values
            return
        _read(path, inner, offsets[1:], buffer[number - offsets[0]])


def _values(path: Path, at: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    handle = os.open(path, os.O_RDONLY)
    try:
        data = os.pread(handle, count * dtype.itemsize, at)
    finally:
        os.close(handle)
    if len(data) != count * dtype.itemsize:
        raise ValueError(f"{path}: cut short")
    return torch.frombuffer(bytearray(data), dtype=dtype)
'''),
    Right("variant_seeks", "seeks to each stretch of a row, in an unbuffered file; no numpy", '''
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from course_lib.comm import Group, broadcast


class Piece(NamedTuple):
    name: str
    shape: tuple[int, ...]
    offsets: tuple[int, ...]
    tensor: torch.Tensor


def complete_steps(folder: str) -> list[int]:
    folders = [path.parent for path in Path(folder).glob("step-*/manifest.json")]
    return sorted(int(path.name.removeprefix("step-")) for path in folders)


def end(offsets: Sequence[int], sizes: Sequence[int]) -> list[int]:
    return [offset + size for offset, size in zip(offsets, sizes, strict=True)]


def slices(first: Sequence[int], last: Sequence[int], offsets: Sequence[int]) -> tuple[slice, ...]:
    places = zip(first, last, offsets, strict=True)
    return tuple(slice(start - offset, stop - offset) for start, stop, offset in places)


def load_resharded(folder: str, wanted: Sequence[Piece], group: Group) -> int:
    newest = torch.zeros(1, dtype=torch.int64)
    if group.index == 0:
        newest[0] = max([-1, *complete_steps(folder)])
    broadcast(newest, 0, group)
    step = int(newest.item())
    path = Path(folder, f"step-{step:08}")
    if step < 0:
        raise FileNotFoundError(str(folder))
    boxes: dict[str, list[dict]] = {}
    with open(path / "manifest.json") as opened:
        for box in json.load(opened)["pieces"]:
            boxes.setdefault(box["name"], []).append(box)
    for piece in wanted:
        if piece.name not in boxes:
            raise ValueError(piece.name)
        box = boxes[piece.name][0]
        if tuple(box["shape"]) != tuple(piece.shape) or f"torch.{box['dtype']}" != str(piece.tensor.dtype):
            raise ValueError(f"{piece.name}: {box}")
    with torch.no_grad():
        for piece in wanted:
            piece.tensor.fill_(0)
            for box in boxes[piece.name]:
                _fill(path / box["file"], box, piece)
    return step


def _fill(path: Path, box: dict, piece: Piece) -> None:
    low = [max(a, b) for a, b in zip(box["offsets"], piece.offsets)]
    high = [min(a, b) for a, b in zip(end(box["offsets"], box["sizes"]), end(piece.offsets, piece.tensor.shape))]
    if any(a >= b for a, b in zip(low, high)):
        return
    item = piece.tensor.itemsize
    with open(path, "rb", buffering=0) as file:
        for index in itertools.product(*(range(a, b) for a, b in zip(low[:-1], high[:-1]))):
            at = 0
            for here, start, size in zip((*index, *low[-1:]), box["offsets"], box["sizes"]):
                at = at * size + here - start
            count = high[-1] - low[-1] if low else 1
            file.seek(box["at"] + at * item)
            data = bytearray(file.read(count * item))
            if len(data) < count * item:
                raise ValueError(f"{path.name} ends too early")
            values = torch.frombuffer(data, dtype=piece.tensor.dtype)
            place = tuple(i - o for i, o in zip(index, piece.offsets))
            row = piece.tensor[place]
            if low:
                row = row[low[-1] - piece.offsets[-1] : high[-1] - piece.offsets[-1]]
                row.copy_(values)
            else:
                row.copy_(values[0])
'''),
]
