"""Wrong and right answers to `heal`: see `course dev show heal`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("another_generator", ["weights and buffers of the healed rank after two more"], '''
-        job.generator.set_state(state["generator"])
+        job.generator = torch.Generator()
+        job.generator.set_state(state["generator"])
'''),
    Wrong("by_a_file", ["the exercise allows no files"], '''
-        memory = io.BytesIO()
-        torch.save(state, memory)
-        raw = torch.frombuffer(bytearray(memory.getvalue()), dtype=torch.uint8)
+        import tempfile
+
+        with tempfile.TemporaryFile() as file:
+            torch.save(state, file)
+            file.seek(0)
+            raw = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)
'''),
    Wrong("by_a_file_of_torch", ["the exercise allows no files"], '''
-        memory = io.BytesIO()
-        torch.save(state, memory)
-        raw = torch.frombuffer(bytearray(memory.getvalue()), dtype=torch.uint8)
+        torch.save(state, "state.pt")
+        raw = torch.from_file("state.pt", size=1 << 10, dtype=torch.uint8)
'''),
    Wrong("guessed_size", ["The expanded size"], '''
-        raw = torch.frombuffer(bytearray(memory.getvalue()), dtype=torch.uint8)
-        send(torch.tensor([raw.numel()]), rank, group)
+        raw = torch.zeros(1 << 16, dtype=torch.uint8)
+        raw[: len(memory.getvalue())] = torch.frombuffer(
+            bytearray(memory.getvalue()), dtype=torch.uint8)
@@
-        size = torch.zeros(1, dtype=torch.int64)
-        recv(size, source, group)
-        raw = torch.zeros(int(size), dtype=torch.uint8)
+        raw = torch.zeros(1 << 16, dtype=torch.uint8)
'''),
    Wrong("seeds_everybody", ["torch's own generator of a living peer"], '''
+    torch.manual_seed(0)
     source = min(index for index, steps in peers.items() if steps == max(peers.values()))
'''),
    Wrong("source_left_in_eval", ["training mode of a living peer"], '''
+        job.model.eval()
         memory = io.BytesIO()
'''),
    Wrong("source_without_gradients", ["the gradients of a living peer"], '''
+        job.optimizer.zero_grad()
         memory = io.BytesIO()
'''),
    Wrong("only_weights", ["the optimizer's states of the healed rank", "it was not sent"], '''
-        job.optimizer.load_state_dict(state["optimizer"])
-        job.sampler.load_state_dict(state["sampler"])
-        job.generator.set_state(state["generator"])
-        job.step = state["step"]
'''),
    Wrong("no_buffers", ["weights and buffers of the healed rank"], '''
-            "model": job.model.state_dict(),
+            "model": dict(job.model.named_parameters()),
@@
-        job.model.load_state_dict(state["model"])
+        job.model.load_state_dict(state["model"], strict=False)
'''),
    Wrong("no_optimizer", ["the optimizer's states of the healed rank"], '''
-        job.optimizer.load_state_dict(state["optimizer"])
'''),
    Wrong("no_options", ["the learning rate of the healed rank"], '''
-        job.optimizer.load_state_dict(state["optimizer"])
+        rate = job.optimizer.param_groups[0]["lr"]
+        job.optimizer.load_state_dict(state["optimizer"])
+        job.optimizer.param_groups[0]["lr"] = rate
'''),
    Wrong("no_sampler", ["the sampler of the healed rank"], '''
-        job.sampler.load_state_dict(state["sampler"])
'''),
    Wrong("no_random_numbers", ["the generator of the healed rank"], '''
-        job.generator.set_state(state["generator"])
'''),
    Wrong("wrong_generator", ["the generator of the healed rank"], '''
-            "generator": job.generator.get_state(),
+            "generator": torch.get_rng_state(),
'''),
    Wrong("step_behind", ["step of the healed rank"], '''
-        job.step = state["step"]
'''),
    Wrong("step_one_behind", ["step of the healed rank"], '''
-        job.step = state["step"]
+        job.step = state["step"] - 1
'''),
    Wrong("any_peer", ["this is another peer's"], '''
-    source = min(index for index, steps in peers.items() if steps == max(peers.values()))
+    source = min(peers)
'''),
    Wrong("first_in_the_dict", ["this is another peer's"], '''
-    source = min(index for index, steps in peers.items() if steps == max(peers.values()))
+    source = max(peers, key=lambda index: peers[index])
'''),
    Wrong("highest_peer", ["this is another peer's"], '''
-    source = min(index for index, steps in peers.items() if steps == max(peers.values()))
+    source = max(index for index, steps in peers.items() if steps == max(peers.values()))
'''),
    Wrong("source_disturbed", ["of a living peer, after it has helped"], '''
         send(raw, rank, group)
+        job.sampler.place += 1
'''),
    Wrong("all_wait", ["neither the source nor heals"], '''
     source = min(index for index, steps in peers.items() if steps == max(peers.values()))
+    for index in sorted({*range(group.size)} - {rank}):  # everybody reports to the new one
+        if group.index == index:
+            send(torch.tensor([job.step]), rank, group)
+        elif group.index == rank:
+            recv(torch.empty(1, dtype=torch.int64), index, group)
'''),
]

HEAD = '''
import io

import torch

from course_lib.comm import recv, send

'''

RIGHT = [
    Right("tuple", "a tuple instead of a dict; the size as a plain loop", HEAD + '''
def heal(job, rank, peers, group):
    most = max(peers.values())
    source = sorted(index for index in peers if peers[index] == most)[0]
    parts = (job.model, job.optimizer, job.sampler)
    if group.index == source:
        memory = io.BytesIO()
        torch.save(([part.state_dict() for part in parts], job.generator.get_state(), job.step),
                   memory)
        data = torch.tensor(list(memory.getvalue()), dtype=torch.uint8)
        send(torch.tensor(len(data)).reshape(1), rank, group)
        send(data, rank, group)
    if group.index == rank:
        count = torch.zeros(1, dtype=torch.int64)
        recv(count, source, group)
        data = torch.zeros(count.item(), dtype=torch.uint8)
        recv(data, source, group)
        states, drawn, step = torch.load(io.BytesIO(bytes(data.tolist())))
        for part, state in zip(parts, states):
            part.load_state_dict(state)
        job.generator.set_state(drawn)
        job.step = step
'''),
    Right("pieces", "in pieces of 512 bytes", HEAD + '''
def heal(job, rank, peers, group):
    source = min(peers, key=lambda index: (-peers[index], index))
    names = ("model", "optimizer", "sampler")
    if group.index == source:
        state = {name: getattr(job, name).state_dict() for name in names}
        memory = io.BytesIO()
        torch.save({**state, "generator": job.generator.get_state(), "step": job.step}, memory)
        raw = torch.frombuffer(bytearray(memory.getvalue()), dtype=torch.uint8)
        send(torch.tensor([len(raw)]), rank, group)
        for piece in raw.split(512):
            send(piece.clone(), rank, group)
    elif group.index == rank:
        size = torch.zeros(1, dtype=torch.int64)
        recv(size, source, group)
        raw = torch.zeros(int(size), dtype=torch.uint8)
        for piece in raw.split(512):
            recv(piece, source, group)
        state = torch.load(io.BytesIO(raw.numpy().tobytes()))
        for name in names:
            getattr(job, name).load_state_dict(state[name])
        job.generator.set_state(state["generator"])
        job.step = state["step"]
'''),
    Right("padded", "the size in front of the bytes, in one tensor of known length first", HEAD + '''
def heal(job, rank, peers, group):
    source = min(i for i in peers if peers[i] >= max(peers.values()))
    if group.index not in (source, rank):
        return
    head = torch.zeros(2, dtype=torch.int64)
    if group.index == source:
        memory = io.BytesIO()
        torch.save([job.model.state_dict(), job.optimizer.state_dict(), job.sampler.state_dict(),
                    job.generator.get_state()], memory)
        raw = torch.frombuffer(bytearray(memory.getvalue()), dtype=torch.uint8)
        head[0], head[1] = len(raw), job.step
        send(head, rank, group)
        send(raw, rank, group)
        return
    recv(head, source, group)
    raw = torch.zeros(int(head[0]), dtype=torch.uint8)
    recv(raw, source, group)
    model, optimizer, sampler, drawn = torch.load(io.BytesIO(raw.numpy().tobytes()))
    job.model.load_state_dict(model)
    job.optimizer.load_state_dict(optimizer)
    job.sampler.load_state_dict(sampler)
    job.generator.set_state(drawn)
    job.step = int(head[1])
'''),
]
