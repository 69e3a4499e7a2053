"""Wrong and right answers to `elastic_restart`: see `course dev show elastic_restart`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("saves_step_0", ["step 0 is saved: nothing was done yet"], '''
-    while job.step < steps:
-        job.make_step()
-        if job.step % interval == 0:
+    while True:
+        if job.step % interval == 0 and not (folder / str(job.step)).exists():
@@
             barrier(group)  # all parts are there
@@
                 unfinished.rename(folder / str(job.step))
+            barrier(group)
+        if job.step == steps:
+            break
+        job.make_step()
'''),
    Wrong("saves_what_it_loaded", ["is saved again: it was loaded from a checkpoint"], '''
         job.restore(whole, own)
+        job.capture()
'''),
    Wrong("interval_from_the_restart", ["counted from the restart"], '''
+    begin = job.step if saved else 0
     while job.step < steps:
@@
-        if job.step % interval == 0:
+        if (job.step - begin) % interval == 0:
'''),
    Wrong("file_that_appears_at_once", ["cannot load what it takes for a complete checkpoint"], '''
-    saved = [int(path.name) for path in folder.iterdir() if path.name.isdigit()]
+    saved = [int(path.parent.name.split(".")[0]) for path in folder.glob("*/whole.pt")]
@@
-        newest = folder / str(max(saved))
+        newest = folder / f"{max(saved)}.unfinished"
@@
+            barrier(group)
             if group.index == 0:
                 torch.save((group.size, whole), unfinished / "whole.pt")
             barrier(group)  # all parts are there
-            if group.index == 0:
-                unfinished.rename(folder / str(job.step))
'''),
    Wrong("left_by_a_save_that_died", ["it was left by a save that died"], '''
-        own = torch.load(newest / f"{group.index}.pt") if group.index < size else None
+        mine = newest / f"{group.index}.pt"
+        own = torch.load(mine) if mine.exists() else None
'''),
    Wrong("another_rank_waits_less", ["deadlock"], '''
-            barrier(group)  # all parts are there
@@
             if group.index == 0:
+                barrier(group)
                 unfinished.rename(folder / str(job.step))
'''),
    Wrong("at_the_end_only", ["saved too seldom"], '''
-        if job.step % interval == 0:
+        if job.step == steps:
'''),
    Wrong("begins_at_zero", ["it went on from step 0"], '''
-    if saved:
+    if saved and steps < 0:
'''),
    Wrong("every_second_interval", ["saved too seldom"], '''
-        if job.step % interval == 0:
+        if job.step % (2 * interval) == 0:
'''),
    Wrong("every_step", ["saved after every step"], '''
-        if job.step % interval == 0:
+        if True:
'''),
    Wrong("leftover_in_the_way", ["FileExistsError"], '''
-            unfinished.mkdir(exist_ok=True)
+            if group.index == 0:
+                unfinished.mkdir()
+            barrier(group)
'''),
    Wrong("marked_too_early", ["cannot load what it takes for a complete checkpoint"], '''
-    saved = [int(path.name) for path in folder.iterdir() if path.name.isdigit()]
+    saved = [int(path.read_text()) for path in folder.glob("newest")]
@@
-            unfinished = folder / f"{job.step}.unfinished"
+            unfinished = folder / str(job.step)
@@
             unfinished.mkdir(exist_ok=True)
+            (folder / "newest").write_text(str(job.step))
@@
-            if group.index == 0:
-                unfinished.rename(folder / str(job.step))
'''),
    Wrong("name_order", ["it went on from step 9"], '''
-        newest = folder / str(max(saved))
+        newest = folder / max(map(str, saved))
'''),
    Wrong("new_rank_looks_for_its_file", ["No such file or directory"], '''
-        own = torch.load(newest / f"{group.index}.pt") if group.index < size else None
+        own = torch.load(newest / f"{group.index}.pt")
'''),
    Wrong("no_names", ["cannot load what it takes for a complete checkpoint"], '''
-            unfinished = folder / f"{job.step}.unfinished"
+            unfinished = folder / str(job.step)
@@
-            if group.index == 0:
-                unfinished.rename(folder / str(job.step))
'''),
    Wrong("nobody_waits", ["cannot load what it takes for a complete checkpoint"], '''
-    saved = [int(path.name) for path in folder.iterdir() if path.name.isdigit()]
+    saved = [int(path.stem) for path in folder.glob("*.complete")]
@@
-            unfinished = folder / f"{job.step}.unfinished"
+            unfinished = folder / str(job.step)
@@
-            barrier(group)  # all parts are there
@@
-                unfinished.rename(folder / str(job.step))
+                (folder / f"{job.step}.complete").touch()
'''),
    Wrong("oldest", ["it went on from step 3"], '''
-        newest = folder / str(max(saved))
+        newest = folder / str(min(saved))
'''),
    Wrong("one_step_late", ["the list of steps that are saved"], '''
-        if job.step % interval == 0:
+        if job.step % interval == 1:
'''),
    Wrong("own_count", ["the list of steps made after a kill"], '''
-    while job.step < steps:
+    for _ in range(steps):
'''),
    Wrong("rank0_loads_alone", ["deadlock"], '''
-    if saved:
+    if saved and group.index == 0:
'''),
    Wrong("rank0_state_for_all", ["the losses after a kill in a step", "it is another rank's"], '''
-        own = torch.load(newest / f"{group.index}.pt") if group.index < size else None
+        own = torch.load(newest / "0.pt")
'''),
    Wrong("unfinished_is_loaded", ["cannot load what it takes for a complete checkpoint"], '''
-    saved = [int(path.name) for path in folder.iterdir() if path.name.isdigit()]
+    saved = [int(path.name.split(".")[0]) for path in folder.iterdir()]
@@
         newest = folder / str(max(saved))
+        newest = newest if newest.exists() else folder / f"{max(saved)}.unfinished"
'''),
]

RIGHT = [
    Right("variant_marks", "a file that says complete, written once all have been heard of", '''
from pathlib import Path
from typing import Any

import torch

from course_lib.comm import Group, all_reduce


def train(group: Group, folder: Path, job: Any, steps: int, interval: int) -> None:
    """Trains, from the newest complete checkpoint if there is one, and saves now and then."""
    marks = [path for path in folder.glob("*.complete")]
    if marks:
        step, size = map(int, max(marks, key=lambda p: int(p.name.split("-")[0])).stem.split("-"))
        whole = torch.load(folder / f"{step}-whole")
        own = torch.load(folder / f"{step}-{group.index}") if group.index < size else None
        job.restore(whole, own)
    for step in range(job.step + 1, steps + 1):
        job.make_step()
        if step % interval:
            continue
        whole, own = job.capture()
        if group.index == group.size - 1:
            torch.save(whole, folder / f"{step}-whole")
        torch.save(own, folder / f"{step}-{group.index}")
        parts = torch.ones(1)
        all_reduce(parts, group)
        if group.index == 0:
            (folder / f"{step}-{group.size}.complete").touch()
'''),
    Right("variant_one_file", "index 0 collects the random states and writes one file", '''
from pathlib import Path
from typing import Any

import torch

from course_lib.comm import Group, all_gather


def train(group: Group, folder: Path, job: Any, steps: int, interval: int) -> None:
    """Trains, from the newest complete checkpoint if there is one, and saves now and then."""
    for path in sorted(folder.glob("step*.pt"), key=lambda p: -int(p.stem[4:])):
        try:
            saved = torch.load(path)
        except (RuntimeError, EOFError):
            continue
        owns = saved["owns"]
        job.restore(saved["whole"], owns[group.index] if group.index < len(owns) else None)
        break
    while job.step < steps:
        job.make_step()
        if job.step % interval == 0:
            whole, own = job.capture()
            version, words, gauss = own["python"]
            kept = torch.tensor([float("nan") if gauss is None else gauss], dtype=torch.float64)
            numbers = torch.tensor([version, *words])
            row = torch.cat([own["torch"].long(), numbers, kept.view(torch.int64)])
            flat = torch.zeros(group.size * len(row), dtype=torch.int64)
            all_gather(flat, row, group)
            owns = []
            for r in flat.view(group.size, -1):
                gauss = None if kept.isnan() else r[-1:].view(torch.float64).item()
                state = (version, tuple(r[len(own["torch"]) + 1 : -1].tolist()), gauss)
                owns.append({"torch": r[: len(own["torch"])].byte(), "python": state})
            if group.index == 0:
                file = folder / "being_written"
                torch.save({"whole": whole, "owns": owns}, file)
                file.replace(folder / f"step{job.step:08}.pt")
'''),
]
