"""Wrong and right answers to `resume_exact`: see `course dev show resume_exact`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("no_second_gauss", ["the losses of the five steps after the restart"], '''
-        random.setstate(own["python"])
+        random.setstate((*own["python"][:2], None))
'''),
    Wrong("pops_its_own", ["KeyError"], '''
-        torch.set_rng_state(own["torch"])  # mutate: same
+        torch.set_rng_state(own.pop("torch"))
'''),
    Wrong("thaws", ["a frozen parameter is not frozen"], '''
+    training.model.requires_grad_(True)
     training.step = job["step"]  # mutate: same
'''),
    Wrong("by_reference", ["saved by reference"], '''
-    return copy.deepcopy(job), {"torch": torch.get_rng_state(), "python": random.getstate()}
+    own = {"torch": torch.get_rng_state(), "python": random.getstate()}
+    return job, own
@@
-    for name in ("model", "optimizer", "schedule", "scaler", "sampler"):  # mutate: same
-        getattr(training, name).load_state_dict(copy.deepcopy(job[name]))
+    job = copy.deepcopy(job)
+    training.model.load_state_dict(job["model"])
+    training.optimizer.load_state_dict(job["optimizer"])
+    training.schedule.load_state_dict(job["schedule"])
+    training.scaler.load_state_dict(job["scaler"])
+    training.sampler.load_state_dict(job["sampler"])
'''),
    Wrong("captured_after_a_draw", ["capture() moves the random numbers on"], '''
-    return copy.deepcopy(job), {"torch": torch.get_rng_state(), "python": random.getstate()}
+    torch.nn.Linear(2, 2)  # a sample batch to look at, say
+    own = {"torch": torch.get_rng_state(), "python": random.getstate()}
+    return copy.deepcopy(job), own
@@
-    for name in ("model", "optimizer", "schedule", "scaler", "sampler"):  # mutate: same
-        getattr(training, name).load_state_dict(copy.deepcopy(job[name]))
+    job = copy.deepcopy(job)
+    training.model.load_state_dict(job["model"])
+    training.optimizer.load_state_dict(job["optimizer"])
+    training.schedule.load_state_dict(job["schedule"])
+    training.scaler.load_state_dict(job["scaler"])
+    training.sampler.load_state_dict(job["sampler"])
'''),
    Wrong("draws_a_name", ["capture() moves the random numbers on"], '''
     """
+    name = int(torch.randint(1 << 30, ()))
     # BEGIN SOLUTION: capture
@@
     job = {
+        "name": name,
@@
-    return copy.deepcopy(job), {"torch": torch.get_rng_state(), "python": random.getstate()}
+    own = {"torch": torch.get_rng_state(), "python": random.getstate()}
+    return copy.deepcopy(job), own
@@
-    for name in ("model", "optimizer", "schedule", "scaler", "sampler"):  # mutate: same
-        getattr(training, name).load_state_dict(copy.deepcopy(job[name]))
+    job = copy.deepcopy(job)
+    training.model.load_state_dict(job["model"])
+    training.optimizer.load_state_dict(job["optimizer"])
+    training.schedule.load_state_dict(job["schedule"])
+    training.scaler.load_state_dict(job["scaler"])
+    training.sampler.load_state_dict(job["sampler"])
'''),
    Wrong("draws_after_restoring", ["the losses of the five steps after the restart", "the next random number on 3 ranks"], '''
-    return copy.deepcopy(job), {"torch": torch.get_rng_state(), "python": random.getstate()}
+    own = {"torch": torch.get_rng_state(), "python": random.getstate()}
+    return copy.deepcopy(job), own
@@
-    for name in ("model", "optimizer", "schedule", "scaler", "sampler"):  # mutate: same
-        getattr(training, name).load_state_dict(copy.deepcopy(job[name]))
+    job = copy.deepcopy(job)
+    training.model.load_state_dict(job["model"])
+    training.optimizer.load_state_dict(job["optimizer"])
+    training.schedule.load_state_dict(job["schedule"])
+    training.scaler.load_state_dict(job["scaler"])
+    training.sampler.load_state_dict(job["sampler"])
@@
         random.setstate(own["python"])
+        torch.rand(2)
'''),
    Wrong("draws_from_python", ["capture() moves the random numbers on"], '''
     job = {
+        "name": random.random(),
@@
-    return copy.deepcopy(job), {"torch": torch.get_rng_state(), "python": random.getstate()}
+    own = {"torch": torch.get_rng_state(), "python": random.getstate()}
+    return copy.deepcopy(job), own
@@
-    for name in ("model", "optimizer", "schedule", "scaler", "sampler"):  # mutate: same
-        getattr(training, name).load_state_dict(copy.deepcopy(job[name]))
+    job = copy.deepcopy(job)
+    training.model.load_state_dict(job["model"])
+    training.optimizer.load_state_dict(job["optimizer"])
+    training.schedule.load_state_dict(job["schedule"])
+    training.scaler.load_state_dict(job["scaler"])
+    training.sampler.load_state_dict(job["sampler"])
'''),
    Wrong("epoch_only", ["one batch is seen twice"], '''
-        "sampler": training.sampler.state_dict(),
+        "sampler": {**training.sampler.state_dict(), "next": 0},
@@
-    return copy.deepcopy(job), {"torch": torch.get_rng_state(), "python": random.getstate()}
+    own = {"torch": torch.get_rng_state(), "python": random.getstate()}
+    return copy.deepcopy(job), own
@@
-    for name in ("model", "optimizer", "schedule", "scaler", "sampler"):  # mutate: same
-        getattr(training, name).load_state_dict(copy.deepcopy(job[name]))
+    job = copy.deepcopy(job)
+    training.model.load_state_dict(job["model"])
+    training.optimizer.load_state_dict(job["optimizer"])
+    training.schedule.load_state_dict(job["schedule"])
+    training.scaler.load_state_dict(job["scaler"])
+    training.sampler.load_state_dict(job["sampler"])
'''),
    Wrong("everything_on_each_rank", ["weights or moments are in it"], '''
-    return copy.deepcopy(job), {"torch": torch.get_rng_state(), "python": random.getstate()}
+    own = {"torch": torch.get_rng_state(), "python": random.getstate()}
+    own["job"] = copy.deepcopy(job)
+    return copy.deepcopy(job), own
@@
-    for name in ("model", "optimizer", "schedule", "scaler", "sampler"):  # mutate: same
-        getattr(training, name).load_state_dict(copy.deepcopy(job[name]))
+    job = copy.deepcopy(own["job"] if own is not None else job)
+    training.model.load_state_dict(job["model"])
+    training.optimizer.load_state_dict(job["optimizer"])
+    training.schedule.load_state_dict(job["schedule"])
+    training.scaler.load_state_dict(job["scaler"])
+    training.sampler.load_state_dict(job["sampler"])
'''),
    Wrong("model_forgotten", ["the weights are not restored"], '''
-        "model": training.model.state_dict(),
@@
-    return copy.deepcopy(job), {"torch": torch.get_rng_state(), "python": random.getstate()}
+    own = {"torch": torch.get_rng_state(), "python": random.getstate()}
+    return copy.deepcopy(job), own
@@
-    for name in ("model", "optimizer", "schedule", "scaler", "sampler"):  # mutate: same
-        getattr(training, name).load_state_dict(copy.deepcopy(job[name]))
+    job = copy.deepcopy(job)
+    training.optimizer.load_state_dict(job["optimizer"])
+    training.schedule.load_state_dict(job["schedule"])
+    training.scaler.load_state_dict(job["scaler"])
+    training.sampler.load_state_dict(job["sampler"])
'''),
    Wrong("moments_without_options", ["the optimizer is not restored: the rate is among its options"], '''
-    return copy.deepcopy(job), {"torch": torch.get_rng_state(), "python": random.getstate()}
+    own = {"torch": torch.get_rng_state(), "python": random.getstate()}
+    return copy.deepcopy(job), own
@@
-    for name in ("model", "optimizer", "schedule", "scaler", "sampler"):  # mutate: same
-        getattr(training, name).load_state_dict(copy.deepcopy(job[name]))
+    job = copy.deepcopy(job)
+    training.model.load_state_dict(job["model"])
+    fresh = training.optimizer.state_dict()["param_groups"]
+    training.optimizer.load_state_dict({**job["optimizer"], "param_groups": fresh})
+    training.schedule.load_state_dict(job["schedule"])
+    training.scaler.load_state_dict(job["scaler"])
+    training.sampler.load_state_dict(job["sampler"])
'''),
    Wrong("new_rank_begins_at_zero", ["the next random number on 3 ranks instead of 2"], '''
-    return copy.deepcopy(job), {"torch": torch.get_rng_state(), "python": random.getstate()}
+    own = {"torch": torch.get_rng_state(), "python": random.getstate()}
+    return copy.deepcopy(job), own
@@
-    for name in ("model", "optimizer", "schedule", "scaler", "sampler"):  # mutate: same
-        getattr(training, name).load_state_dict(copy.deepcopy(job[name]))
+    job = copy.deepcopy(job)
+    training.model.load_state_dict(job["model"])
+    training.optimizer.load_state_dict(job["optimizer"])
+    training.schedule.load_state_dict(job["schedule"])
+    training.scaler.load_state_dict(job["scaler"])
+    training.sampler.load_state_dict(job["sampler"])
@@
         random.setstate(own["python"])
+    else:
+        torch.manual_seed(0)
'''),
    Wrong("new_rank_refused", ["'NoneType' object is not subscriptable"], '''
-    return copy.deepcopy(job), {"torch": torch.get_rng_state(), "python": random.getstate()}
+    own = {"torch": torch.get_rng_state(), "python": random.getstate()}
+    return copy.deepcopy(job), own
@@
-    for name in ("model", "optimizer", "schedule", "scaler", "sampler"):  # mutate: same
-        getattr(training, name).load_state_dict(copy.deepcopy(job[name]))
+    job = copy.deepcopy(job)
+    training.model.load_state_dict(job["model"])
+    training.optimizer.load_state_dict(job["optimizer"])
+    training.schedule.load_state_dict(job["schedule"])
+    training.scaler.load_state_dict(job["scaler"])
+    training.sampler.load_state_dict(job["sampler"])
@@
-    if own is not None:
-        torch.set_rng_state(own["torch"])  # mutate: same
-        random.setstate(own["python"])
+    torch.set_rng_state(own["torch"])
+    random.setstate(own["python"])
'''),
    Wrong("one_batch_skipped", ["one batch is skipped"], '''
-    return copy.deepcopy(job), {"torch": torch.get_rng_state(), "python": random.getstate()}
+    job = copy.deepcopy(job)
+    job["sampler"]["next"] += 12
+    own = {"torch": torch.get_rng_state(), "python": random.getstate()}
+    return copy.deepcopy(job), own
@@
-    for name in ("model", "optimizer", "schedule", "scaler", "sampler"):  # mutate: same
-        getattr(training, name).load_state_dict(copy.deepcopy(job[name]))
+    job = copy.deepcopy(job)
+    training.model.load_state_dict(job["model"])
+    training.optimizer.load_state_dict(job["optimizer"])
+    training.schedule.load_state_dict(job["schedule"])
+    training.scaler.load_state_dict(job["scaler"])
+    training.sampler.load_state_dict(job["sampler"])
'''),
    Wrong("one_batch_twice", ["one batch is seen twice"], '''
-    return copy.deepcopy(job), {"torch": torch.get_rng_state(), "python": random.getstate()}
+    job = copy.deepcopy(job)
+    job["sampler"]["next"] -= 12
+    own = {"torch": torch.get_rng_state(), "python": random.getstate()}
+    return copy.deepcopy(job), own
@@
-    for name in ("model", "optimizer", "schedule", "scaler", "sampler"):  # mutate: same
-        getattr(training, name).load_state_dict(copy.deepcopy(job[name]))
+    job = copy.deepcopy(job)
+    training.model.load_state_dict(job["model"])
+    training.optimizer.load_state_dict(job["optimizer"])
+    training.schedule.load_state_dict(job["schedule"])
+    training.scaler.load_state_dict(job["scaler"])
+    training.sampler.load_state_dict(job["sampler"])
'''),
    Wrong("one_state", ["capture() does not return two states"], '''
-    return copy.deepcopy(job), {"torch": torch.get_rng_state(), "python": random.getstate()}
+    job |= {"torch": torch.get_rng_state(), "python": random.getstate()}
+    return copy.deepcopy(job)
@@
-    for name in ("model", "optimizer", "schedule", "scaler", "sampler"):  # mutate: same
-        getattr(training, name).load_state_dict(copy.deepcopy(job[name]))
+    job = copy.deepcopy(job)
+    training.model.load_state_dict(job["model"])
+    training.optimizer.load_state_dict(job["optimizer"])
+    training.schedule.load_state_dict(job["schedule"])
+    training.scaler.load_state_dict(job["scaler"])
+    training.sampler.load_state_dict(job["sampler"])
'''),
    Wrong("optimizer_forgotten", ["the optimizer is not restored"], '''
-        "optimizer": training.optimizer.state_dict(),
@@
-    return copy.deepcopy(job), {"torch": torch.get_rng_state(), "python": random.getstate()}
+    own = {"torch": torch.get_rng_state(), "python": random.getstate()}
+    return copy.deepcopy(job), own
@@
-    for name in ("model", "optimizer", "schedule", "scaler", "sampler"):  # mutate: same
-        getattr(training, name).load_state_dict(copy.deepcopy(job[name]))
+    job = copy.deepcopy(job)
+    training.model.load_state_dict(job["model"])
+    training.schedule.load_state_dict(job["schedule"])
+    training.scaler.load_state_dict(job["scaler"])
+    training.sampler.load_state_dict(job["sampler"])
'''),
    Wrong("parameters_only", ["a buffer of the model is not restored"], '''
-        "model": training.model.state_dict(),
+        "model": dict(training.model.named_parameters()),
@@
-    return copy.deepcopy(job), {"torch": torch.get_rng_state(), "python": random.getstate()}
+    own = {"torch": torch.get_rng_state(), "python": random.getstate()}
+    job["model"] = {n: p.detach() for n, p in job["model"].items()}
+    return copy.deepcopy(job), own
@@
-    for name in ("model", "optimizer", "schedule", "scaler", "sampler"):  # mutate: same
-        getattr(training, name).load_state_dict(copy.deepcopy(job[name]))
+    job = copy.deepcopy(job)
+    training.model.load_state_dict(job["model"], strict=False)
+    training.optimizer.load_state_dict(job["optimizer"])
+    training.schedule.load_state_dict(job["schedule"])
+    training.scaler.load_state_dict(job["scaler"])
+    training.sampler.load_state_dict(job["sampler"])
'''),
    Wrong("python_rng_forgotten", ["Python's random numbers are not restored"], '''
-    return copy.deepcopy(job), {"torch": torch.get_rng_state(), "python": random.getstate()}
+    own = {"torch": torch.get_rng_state()}
+    return copy.deepcopy(job), own
@@
-    for name in ("model", "optimizer", "schedule", "scaler", "sampler"):  # mutate: same
-        getattr(training, name).load_state_dict(copy.deepcopy(job[name]))
+    job = copy.deepcopy(job)
+    training.model.load_state_dict(job["model"])
+    training.optimizer.load_state_dict(job["optimizer"])
+    training.schedule.load_state_dict(job["schedule"])
+    training.scaler.load_state_dict(job["scaler"])
+    training.sampler.load_state_dict(job["sampler"])
@@
-        random.setstate(own["python"])
'''),
    Wrong("rank0_rng_everywhere", ["every rank has rank 0's random numbers"], '''
         "step": training.step,
+        "torch": torch.get_rng_state(),
+        "python": random.getstate(),
@@
-    return copy.deepcopy(job), {"torch": torch.get_rng_state(), "python": random.getstate()}
+    return copy.deepcopy(job), {}
@@
-    for name in ("model", "optimizer", "schedule", "scaler", "sampler"):  # mutate: same
-        getattr(training, name).load_state_dict(copy.deepcopy(job[name]))
+    job = copy.deepcopy(job)
+    training.model.load_state_dict(job["model"])
+    training.optimizer.load_state_dict(job["optimizer"])
+    training.schedule.load_state_dict(job["schedule"])
+    training.scaler.load_state_dict(job["scaler"])
+    training.sampler.load_state_dict(job["sampler"])
@@
-    if own is not None:
-        torch.set_rng_state(own["torch"])  # mutate: same
-        random.setstate(own["python"])
+    torch.set_rng_state(job["torch"])
+    random.setstate(job["python"])
'''),
    Wrong("restored_by_reference", ["restored by reference"], '''
-    return copy.deepcopy(job), {"torch": torch.get_rng_state(), "python": random.getstate()}
+    own = {"torch": torch.get_rng_state(), "python": random.getstate()}
+    return copy.deepcopy(job), own
@@
-    for name in ("model", "optimizer", "schedule", "scaler", "sampler"):  # mutate: same
-        getattr(training, name).load_state_dict(copy.deepcopy(job[name]))
+    training.model.load_state_dict(job["model"])
+    training.optimizer.load_state_dict(job["optimizer"])
+    training.schedule.load_state_dict(job["schedule"])
+    training.scaler.load_state_dict(job["scaler"])
+    training.sampler.load_state_dict(job["sampler"])
'''),
    Wrong("sampler_forgotten", ["the sampler begins again"], '''
-        "sampler": training.sampler.state_dict(),
@@
-    return copy.deepcopy(job), {"torch": torch.get_rng_state(), "python": random.getstate()}
+    own = {"torch": torch.get_rng_state(), "python": random.getstate()}
+    return copy.deepcopy(job), own
@@
-    for name in ("model", "optimizer", "schedule", "scaler", "sampler"):  # mutate: same
-        getattr(training, name).load_state_dict(copy.deepcopy(job[name]))
+    job = copy.deepcopy(job)
+    training.model.load_state_dict(job["model"])
+    training.optimizer.load_state_dict(job["optimizer"])
+    training.schedule.load_state_dict(job["schedule"])
+    training.scaler.load_state_dict(job["scaler"])
'''),
    Wrong("saves_objects", ["save what its state_dict() says"], '''
-        "schedule": training.schedule.state_dict(),
+        "schedule": training.schedule,
@@
-    return copy.deepcopy(job), {"torch": torch.get_rng_state(), "python": random.getstate()}
+    own = {"torch": torch.get_rng_state(), "python": random.getstate()}
+    return copy.deepcopy(job), own
@@
-    for name in ("model", "optimizer", "schedule", "scaler", "sampler"):  # mutate: same
-        getattr(training, name).load_state_dict(copy.deepcopy(job[name]))
+    job = copy.deepcopy(job)
+    training.model.load_state_dict(job["model"])
+    training.optimizer.load_state_dict(job["optimizer"])
+    training.schedule = job["schedule"]
+    training.scaler.load_state_dict(job["scaler"])
+    training.sampler.load_state_dict(job["sampler"])
'''),
    Wrong("scaler_forgotten", ["the scaler is not restored"], '''
-        "scaler": training.scaler.state_dict(),
@@
-    return copy.deepcopy(job), {"torch": torch.get_rng_state(), "python": random.getstate()}
+    own = {"torch": torch.get_rng_state(), "python": random.getstate()}
+    return copy.deepcopy(job), own
@@
-    for name in ("model", "optimizer", "schedule", "scaler", "sampler"):  # mutate: same
-        getattr(training, name).load_state_dict(copy.deepcopy(job[name]))
+    job = copy.deepcopy(job)
+    training.model.load_state_dict(job["model"])
+    training.optimizer.load_state_dict(job["optimizer"])
+    training.schedule.load_state_dict(job["schedule"])
+    training.sampler.load_state_dict(job["sampler"])
'''),
    Wrong("schedule_forgotten", ["the schedule is not restored"], '''
-        "schedule": training.schedule.state_dict(),
@@
-    return copy.deepcopy(job), {"torch": torch.get_rng_state(), "python": random.getstate()}
+    own = {"torch": torch.get_rng_state(), "python": random.getstate()}
+    return copy.deepcopy(job), own
@@
-    for name in ("model", "optimizer", "schedule", "scaler", "sampler"):  # mutate: same
-        getattr(training, name).load_state_dict(copy.deepcopy(job[name]))
+    job = copy.deepcopy(job)
+    training.model.load_state_dict(job["model"])
+    training.optimizer.load_state_dict(job["optimizer"])
+    training.scaler.load_state_dict(job["scaler"])
+    training.sampler.load_state_dict(job["sampler"])
'''),
    Wrong("seed_for_state", ["a seed is not where they are"], '''
-    return copy.deepcopy(job), {"torch": torch.get_rng_state(), "python": random.getstate()}
+    own = {"torch": torch.initial_seed(), "python": random.getstate()}
+    return copy.deepcopy(job), own
@@
-    for name in ("model", "optimizer", "schedule", "scaler", "sampler"):  # mutate: same
-        getattr(training, name).load_state_dict(copy.deepcopy(job[name]))
+    job = copy.deepcopy(job)
+    training.model.load_state_dict(job["model"])
+    training.optimizer.load_state_dict(job["optimizer"])
+    training.schedule.load_state_dict(job["schedule"])
+    training.scaler.load_state_dict(job["scaler"])
+    training.sampler.load_state_dict(job["sampler"])
@@
-        torch.set_rng_state(own["torch"])  # mutate: same
+        torch.manual_seed(own["torch"])
'''),
    Wrong("shallow_copy", ["saved by reference"], '''
-    return copy.deepcopy(job), {"torch": torch.get_rng_state(), "python": random.getstate()}
+    own = {"torch": torch.get_rng_state(), "python": random.getstate()}
+    return {
+        name: dict(state) if isinstance(state, dict) else state for name, state in job.items()
+    }, own
@@
-    for name in ("model", "optimizer", "schedule", "scaler", "sampler"):  # mutate: same
-        getattr(training, name).load_state_dict(copy.deepcopy(job[name]))
+    job = copy.deepcopy(job)
+    training.model.load_state_dict(job["model"])
+    training.optimizer.load_state_dict(job["optimizer"])
+    training.schedule.load_state_dict(job["schedule"])
+    training.scaler.load_state_dict(job["scaler"])
+    training.sampler.load_state_dict(job["sampler"])
'''),
    Wrong("step_forgotten", ["the count of steps begins again"], '''
-        "step": training.step,
@@
-    return copy.deepcopy(job), {"torch": torch.get_rng_state(), "python": random.getstate()}
+    own = {"torch": torch.get_rng_state(), "python": random.getstate()}
+    return copy.deepcopy(job), own
@@
-    for name in ("model", "optimizer", "schedule", "scaler", "sampler"):  # mutate: same
-        getattr(training, name).load_state_dict(copy.deepcopy(job[name]))
-    training.step = job["step"]  # mutate: same
+    job = copy.deepcopy(job)
+    training.model.load_state_dict(job["model"])
+    training.optimizer.load_state_dict(job["optimizer"])
+    training.schedule.load_state_dict(job["schedule"])
+    training.scaler.load_state_dict(job["scaler"])
+    training.sampler.load_state_dict(job["sampler"])
'''),
    Wrong("step_one_on", ["training.step after restore()"], '''
-        "step": training.step,
+        "step": training.step + 1,
@@
-    return copy.deepcopy(job), {"torch": torch.get_rng_state(), "python": random.getstate()}
+    own = {"torch": torch.get_rng_state(), "python": random.getstate()}
+    return copy.deepcopy(job), own
@@
-    for name in ("model", "optimizer", "schedule", "scaler", "sampler"):  # mutate: same
-        getattr(training, name).load_state_dict(copy.deepcopy(job[name]))
+    job = copy.deepcopy(job)
+    training.model.load_state_dict(job["model"])
+    training.optimizer.load_state_dict(job["optimizer"])
+    training.schedule.load_state_dict(job["schedule"])
+    training.scaler.load_state_dict(job["scaler"])
+    training.sampler.load_state_dict(job["sampler"])
'''),
    Wrong("torch_rng_forgotten", ["torch's random numbers are not restored"], '''
-    return copy.deepcopy(job), {"torch": torch.get_rng_state(), "python": random.getstate()}
+    own = {"python": random.getstate()}
+    return copy.deepcopy(job), own
@@
-    for name in ("model", "optimizer", "schedule", "scaler", "sampler"):  # mutate: same
-        getattr(training, name).load_state_dict(copy.deepcopy(job[name]))
+    job = copy.deepcopy(job)
+    training.model.load_state_dict(job["model"])
+    training.optimizer.load_state_dict(job["optimizer"])
+    training.schedule.load_state_dict(job["schedule"])
+    training.scaler.load_state_dict(job["scaler"])
+    training.sampler.load_state_dict(job["sampler"])
@@
-        torch.set_rng_state(own["torch"])  # mutate: same
'''),
    Wrong("weights_cloned_only", ["saved by reference"], '''
-        "model": training.model.state_dict(),
+        "model": {n: t.clone() for n, t in training.model.state_dict().items()},
@@
-    return copy.deepcopy(job), {"torch": torch.get_rng_state(), "python": random.getstate()}
+    own = {"torch": torch.get_rng_state(), "python": random.getstate()}
+    return job, own
@@
-    for name in ("model", "optimizer", "schedule", "scaler", "sampler"):  # mutate: same
-        getattr(training, name).load_state_dict(copy.deepcopy(job[name]))
+    job = copy.deepcopy(job)
+    training.model.load_state_dict(job["model"])
+    training.optimizer.load_state_dict(job["optimizer"])
+    training.schedule.load_state_dict(job["schedule"])
+    training.scaler.load_state_dict(job["scaler"])
+    training.sampler.load_state_dict(job["sampler"])
'''),
    Wrong("weights_in_float32", ["as large as float32's rounding"], '''
-    return copy.deepcopy(job), {"torch": torch.get_rng_state(), "python": random.getstate()}
+    job["model"] = {n: t.float() for n, t in job["model"].items()}
+    own = {"torch": torch.get_rng_state(), "python": random.getstate()}
+    return copy.deepcopy(job), own
@@
-    for name in ("model", "optimizer", "schedule", "scaler", "sampler"):  # mutate: same
-        getattr(training, name).load_state_dict(copy.deepcopy(job[name]))
+    job = copy.deepcopy(job)
+    training.model.load_state_dict(job["model"])
+    training.optimizer.load_state_dict(job["optimizer"])
+    training.schedule.load_state_dict(job["schedule"])
+    training.scaler.load_state_dict(job["scaler"])
+    training.sampler.load_state_dict(job["sampler"])
'''),
]

RIGHT = [
    Right("variant_every_attribute", "whatever has a state_dict is saved", '''
import copy
import random
from typing import Any

import torch


def capture(training: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """All that the next step depends on."""
    states = {
        name: part.state_dict()
        for name, part in vars(training).items()
        if hasattr(part, "state_dict")
    }
    own = {"torch": torch.random.get_rng_state(), "python": random.getstate()}
    return {"parts": copy.deepcopy(states), "step": training.step}, own


def restore(training: Any, job: dict[str, Any], own: dict[str, Any] | None) -> None:
    """Makes a training go on where `capture` was called."""
    for name, state in copy.deepcopy(job["parts"]).items():
        getattr(training, name).load_state_dict(state)
    training.step = job["step"]
    if own:
        random.setstate(own["python"])
        torch.set_rng_state(own["torch"])
'''),
    Right("variant_one_big_buffer", "the job's state is torch.save's bytes, random numbers are hex", '''
import io
import random
from typing import Any

import torch


def capture(training: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """All that the next step depends on."""
    kinds = ("model", "optimizer", "schedule", "scaler", "sampler")
    file = io.BytesIO()
    torch.save({kind: getattr(training, kind).state_dict() for kind in kinds}, file)
    written = torch.frombuffer(bytearray(file.getvalue()), dtype=torch.uint8)
    version, words, gauss = random.getstate()
    own = {
        "torch": bytes(torch.get_rng_state().tolist()).hex(),
        "python": [version, list(words), gauss],
    }
    return {"file": written, "step": training.step}, own


def restore(training: Any, job: dict[str, Any], own: dict[str, Any] | None) -> None:
    """Makes a training go on where `capture` was called."""
    loaded = torch.load(io.BytesIO(bytes(job["file"].tolist())), weights_only=True)
    for kind, state in loaded.items():
        getattr(training, kind).load_state_dict(state)
    training.step = job["step"]
    if own is not None:
        raw = bytearray(bytes.fromhex(own["torch"]))
        torch.set_rng_state(torch.frombuffer(raw, dtype=torch.uint8).clone())
        version, words, gauss = own["python"]
        random.setstate((version, tuple(words), gauss))
'''),
    Right("variant_tree_of_copies", "tensors are cloned one by one, also for restoring", '''
import random
from typing import Any

import torch


def copied(state: Any) -> Any:
    """Clones of all tensors, in new containers."""
    if isinstance(state, torch.Tensor):
        return state.detach().clone()
    if isinstance(state, dict):
        return {key: copied(item) for key, item in state.items()}
    return type(state)(map(copied, state)) if isinstance(state, (list, tuple)) else state


def capture(training: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """All that the next step depends on."""
    job = {
        "model": training.model.state_dict(),
        "optimizer": training.optimizer.state_dict(),
        "schedule": training.schedule.state_dict(),
        "scaler": training.scaler.state_dict(),
        "sampler": training.sampler.state_dict(),
        "step": training.step,
    }
    own = {"torch": torch.get_rng_state(), "python": random.getstate()}
    return copied(job), own


def restore(training: Any, job: dict[str, Any], own: dict[str, Any] | None) -> None:
    """Makes a training go on where `capture` was called."""
    job = copied(job)
    training.model.load_state_dict(job["model"])
    training.optimizer.load_state_dict(job["optimizer"])
    training.schedule.load_state_dict(job["schedule"])
    training.scaler.load_state_dict(job["scaler"])
    training.sampler.load_state_dict(job["sampler"])
    training.step = job["step"]
    if own is not None:
        torch.set_rng_state(own["torch"])
        random.setstate(own["python"])
'''),
    Right("variant_written_by_hand", "parameters, moments and options are copied by hand", '''
import copy
import random
from typing import Any

import torch
from torch import nn


def tensors_of(model: nn.Module) -> list[torch.Tensor]:
    """Parameters and buffers."""
    return [*model.parameters(), *model.buffers()]


def capture(training: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """All that the next step depends on."""
    adam = training.optimizer
    moments = [copy.deepcopy(adam.state[p]) for p in training.model.parameters()]
    options = [{k: v for k, v in g.items() if k != "params"} for g in adam.param_groups]
    job = {
        "tensors": [t.detach().clone() for t in tensors_of(training.model)],
        "moments": moments,
        "options": options,
        "rest": [
            copy.deepcopy(part.state_dict())
            for part in (training.schedule, training.scaler, training.sampler)
        ],
        "step": training.step,
    }
    return job, {"torch": torch.get_rng_state(), "python": random.getstate()}


def restore(training: Any, job: dict[str, Any], own: dict[str, Any] | None) -> None:
    """Makes a training go on where `capture` was called."""
    with torch.no_grad():
        for mine, saved in zip(tensors_of(training.model), job["tensors"], strict=True):
            mine.copy_(saved)
    adam = training.optimizer
    for parameter, moments in zip(training.model.parameters(), job["moments"], strict=True):
        adam.state[parameter] = copy.deepcopy(moments)
    for group, options in zip(adam.param_groups, job["options"], strict=True):
        group.update(options)
    parts = (training.schedule, training.scaler, training.sampler)
    for part, state in zip(parts, job["rest"], strict=True):
        part.load_state_dict(dict(state))
    training.step = job["step"]
    if own is not None:
        torch.set_rng_state(own["torch"])
        random.setstate(own["python"])
'''),
]
