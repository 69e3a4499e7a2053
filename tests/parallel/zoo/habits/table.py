"""The habits: one row each. A wrapper that `refused` does not name must equal one process."""

from __future__ import annotations

from tests.parallel.zoo.habits import changes, loops, losses
from tests.parallel.zoo.habits.trainer import WRAPPERS, Habit

FSDP = ("FSDP",)
CUT = ("Zero1", "Zero2", "FSDP")


def by(wrappers: tuple[str, ...], words: str) -> dict[str, str]:
    """All of these refuse with these words."""
    return dict.fromkeys(wrappers, words)


HABITS = [
    Habit("`module.zero_grad()` drops a batch", loops.forgotten_by_the_module),
    Habit("two networks by turns, as in a GAN", loops.two_by_turns),
    Habit("`zero_grad(set_to_none=False)`, and parts that a step leaves out",
          loops.zeros_for_the_unused, by(("Zero1", "Zero2"), "set_to_none=False")),
    Habit("gradients of `autograd.grad` are assigned", loops.assigned,
          by(("BucketedDDP",), "no backward of") | by(("Zero2",), "no backward has")
          | by(FSDP, "none for")),
    Habit("a gradient from before the wrapper is used", loops.from_before,
          by(("BucketedDDP",), "no backward of") | by(("Zero2",), "no backward has")
          | by(FSDP, "there already")),
    Habit("optimizers in the backward, by hooks", loops.in_the_backward,
          by(("BucketedDDP",), "no backward of") | by(("Zero2",), "no backward has")
          | by(FSDP, "a backward that goes on")),
    Habit("gradients that hooks keep elsewhere until the step", loops.kept_elsewhere,
          by(("BucketedDDP", "Zero2"), "taken it away") | by(FSDP, "none for")),
    Habit("hooks that change gradients, added after the wrapper", loops.changed_by_hooks),
    Habit("the same, added after the optimizer", loops.changed_by_later_hooks),
    Habit("the same, and calls of the module in the wrapper", loops.past_the_wrapper,
          by(FSDP, "call the FSDP")),
    Habit("`get_total_norm` and `clip_grads_with_norm_`", loops.clipped_in_two_lines,
          by(CUT, "clip_grad_norm of")),
    Habit("torch's GradScaler", loops.scaled, by(CUT, "DynamicLossScaler")),
    Habit("LBFGS with a line search over the mean loss", loops.with_line_search,
          by(CUT, "whose updates of pieces"), close=1e-7),
    Habit("OneCycleLR, which changes momentum too", loops.one_cycle),
    Habit("optimizer and schedule resumed by `state_dict`", loops.resumed),
    Habit("an optimizer that counts among its options", loops.counting),
    Habit("decay for parameters of two dims", loops.sorted_by_dims, by(FSDP, "one dim each")),
    Habit("layers are frozen between two steps", changes.freezes,
          by(("BucketedDDP", "Zero1", "Zero2"), "frozen since") | by(FSDP, "frozen or unfrozen")),
    Habit("the same with find_unused_parameters", changes.freezes_and_says_so,
          by(FSDP, "frozen or unfrozen")),
    Habit("layers are unfrozen between two steps", changes.unfreezes,
          by(("BucketedDDP", "Zero1", "Zero2"), "was frozen") | by(FSDP, "frozen or unfrozen")),
    Habit("the model is cast, and back", changes.casts_and_back, by(FSDP, "another device or"),
          close=1e-4),
    Habit("weights are set by `vector_to_parameters`", changes.through_a_vector,
          by(FSDP, "replaced")),
    Habit("`load_state_dict(assign=True)`, and another optimizer", changes.loads_by_assigning,
          by(("BucketedDDP",), "not there when") | by(FSDP, "load_full_state_dict")),
    Habit("AveragedModel of the wrapper", changes.averages, by(FSDP, "a copy of a module")),
    Habit("a copy of the wrapper is trained", changes.trains_a_copy,
          by(FSDP, "a copy of a module")),
    Habit("`torch.save` of the wrapper", changes.saves_it_whole,
          by(("BucketedDDP",), "a pickle of") | by(FSDP, "a copy of a module")),
    Habit("two wrappers of one model", changes.wraps_twice,
          by(("BucketedDDP",), "made of the same parameter") | by(FSDP, "cut already")),
    Habit("the wrapper is made again, as by running a cell again", changes.wraps_again,
          by(FSDP, "cut already")),
    Habit("layers in a plain list", changes.hides_layers,
          by(("BucketedDDP", "FSDP"), "no wrapper has")),
    Habit("`torch.compile` of the wrapper", changes.compiles_the_wrapper),
    Habit("an evaluation between a forward and its backward", losses.looks_between),
    Habit("two backwards of one forward", losses.one_graph_twice),
    Habit("a backward for the gradient of the inputs", losses.against_its_inputs),
    Habit("a weight that the loss reads before the forward", losses.reads_a_weight,
          by(FSDP, "in its forward only")),
    Habit("a loss with weights of the last layer, as a fused cross-entropy", losses.fuses_the_head),
    Habit("a backward of a parameter that FSDP keeps whole, by itself", losses.apart_from_outputs,
          by(("Zero2", "FSDP"), "find_unused_parameters")),
    Habit("the same with find_unused_parameters", losses.apart_and_says_so),
    Habit("a forward of what the one before returned", losses.rolls_out),
    Habit("`inference_mode` between two steps", changes.infers_between),
    Habit("activations saved elsewhere, by `save_on_cpu`", changes.saves_activations_elsewhere),
]  # fmt: skip


def table() -> str:
    """The rows in Markdown, a line each."""
    head = ["| the loop has | " + " | ".join(WRAPPERS) + " |", "|---" * (len(WRAPPERS) + 1) + "|"]
    body = [
        f"| {habit.what} | "
        + " | ".join(f"refused: {w}" if w else "equal" for w in map(habit.refused.get, WRAPPERS))
        + " |"
        for habit in HABITS
    ]
    return "\n".join([*head, *body]) + "\n"
