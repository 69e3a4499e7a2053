"""A layout at a glance: the fullest GPU's memory, where a step's time goes, bytes on every link."""

from __future__ import annotations

from collections.abc import Mapping

from course_lib.layout import Layout
from course_lib.plan import Memory, PredictedStep, Problem, simulate
from course_lib.plan.inputs.calibration import band
from course_lib.plan.search.planner import breaks_a_rule
from course_lib.plan.time.traffic import Traffic, traffic
from course_lib.plot.player import svg
from course_lib.plot.player.picture import Picture
from course_lib.plot.player.player import Frame, Player
from course_lib.plot.player.style import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    VERMILLION,
    YELLOW,
    format_bytes,
    format_time,
    text_on,
)
from course_lib.trace import Refusal

LEFT, WIDE, TALL = 16.0, 740.0, 26.0
SIZE = (LEFT + WIDE + 24, 382.0)
MEMORY = {
    "parameters": ("parameters", BLUE),
    "gradients": ("gradients", ORANGE),
    "optimizer": ("optimizer state", GREEN),
    "activations": ("activations", SKY),
    "logits": ("logits", YELLOW),
    "working": ("working", PURPLE),
    "buffers": ("buffers", GREY),
}
PARTS = {
    "products": ("products", GREEN),
    "attention": ("attention", SKY),
    "element-wise": ("element-wise", BLUE),
    "optimizer": ("update", YELLOW),
    "exposed": ("exposed communication", VERMILLION),
    "bubble": ("bubble", GREY),
    "slowest": ("waiting for the slowest node", PURPLE),
}
AXES = ("tp", "cp", "ep", "dp", "pp")


class LayoutDrawing:
    """What is known of a layout before it runs.

    Args:
        problem: the model, the cluster and the batch.
        layout: how the model is spread; it uses all GPUs of the cluster.

    Attributes:
        why_not: a rule that the layout breaks, in a sentence; empty if it breaks none.
    """

    def __init__(self, problem: Problem, layout: Layout) -> None:
        self.problem, self.layout, self.cluster = problem, layout, problem.cluster
        self.why_not = self._impossible()
        if not self.why_not:
            self.step: PredictedStep = simulate(problem.config, layout, self.cluster)
            self.sent: Mapping[str, Traffic] = traffic(problem.config, layout, self.cluster)

    def _impossible(self) -> str:
        if self.layout.gpus != self.cluster.count:
            return f"the degrees need {self.layout.gpus} GPUs, and there are {self.cluster.count}"
        if why := breaks_a_rule(self.problem, self.layout):
            return why
        try:
            self.memory: Memory = self.problem.memory(self.layout)
        except Refusal as error:
            return f"{error.asked}: {error.found}, but {error.why}"
        return ""

    @property
    def fits(self) -> bool:
        """Whether the fullest GPU has room for all of it."""
        return self.memory.total <= self.problem.room

    def frame(self) -> Frame:
        """The picture, and what it says in a sentence or two."""
        if self.why_not:
            words = svg.text(LEFT, 60, "This layout cannot run", anchor="start", bold=True, size=15)
            return Frame((words,), f"This layout cannot run: {self.why_not}.")
        return Frame((self._memory() + self._time() + self._links(),), self._words())

    def picture(self) -> Picture:
        """The same for a page; its `alt` is the caption."""
        frame, title = self.frame(), "a layout"
        player = Player(SIZE, "", [(0, 0)], [frame], title=title, alt=frame.caption)
        return Picture(player.frame_svg(0), frame.caption, title)

    # --- the three rows --------------------------------------------------------------------------
    def _memory(self) -> str:
        """A bar of classes, and the line where the GPU is full."""
        whole = self.cluster.gpu.memory
        scale = WIDE / max(whole * 1.08, self.memory.total)
        parts = {
            words: (getattr(self.memory, name) * scale, color)
            for name, (words, color) in MEMORY.items()
        }
        total = format_bytes(self.memory.total, decimal=True)
        out = [_head(24, f"Memory of the fullest GPU: {total}"), _stack(36, parts)]
        for count, words in ((self.problem.room, "usable"), (whole, "full")):
            x = LEFT + count * scale
            out.append(svg.line([(x, 31), (x, 80)], kind="ink-edge", dashed=words == "usable"))
            anchor = "end" if words == "usable" else "start"
            aside = 4 if anchor == "start" else -4
            out.append(svg.text(x + aside, 78, words, size=11, kind="soft", anchor=anchor))
        return "".join([*out, _legend(98, parts)])

    def _time(self) -> str:
        """A bar of what the busiest rank does."""
        seconds = dict(self.step.parts)
        seconds["exposed"] = sum(seconds.pop(axis, 0.0) for axis in AXES)
        scale = WIDE / self.step.seconds
        parts = {
            words: (seconds.get(name, 0.0) * scale, color) for name, (words, color) in PARTS.items()
        }
        words = f"A step: {format_time(self.step.seconds)}, {self.step.mfu:.0%} MFU"
        return _head(140, words) + _stack(152, parts) + _legend(200, parts)

    def _links(self) -> str:
        """A row for each axis: where its groups lie, what a GPU sends, what is not hidden."""
        head = _head(246, "Sent by a GPU in a step" if self.sent else "Nothing is sent")
        out, most = [head], max((one.sent for one in self.sent.values()), default=1.0)
        for row, (axis, one) in enumerate(self.sent.items()):
            y = 258 + 24 * row
            place = "inside a node" if one.nodes == 1 else f"over {one.nodes} nodes"
            color = SKY if one.nodes == 1 else ORANGE
            shown = max(2.0, 300 * one.sent / most)
            out.append(svg.text(LEFT + 24, y + 14, axis, bold=True, anchor="end"))
            out.append(svg.text(LEFT + 34, y + 14, place, kind="soft", anchor="start"))
            out.append(svg.box(LEFT + 150, y + 2, shown, 16, fill=color, radius=2))
            said = format_bytes(one.sent, decimal=True)
            waits = self.step.exposed[axis]
            said += f", {format_time(waits)} exposed" if waits else ", hidden"
            out.append(svg.text(LEFT + 156 + shown, y + 14, said, anchor="start"))
        return "".join(out)

    def _words(self) -> str:
        """The same in a sentence or two."""
        step, layout = self.step, self.layout
        width = band(self.cluster.gpu.name, layout)
        return (
            f"{format_bytes(self.memory.total, decimal=True)} on the fullest GPU"
            f"{'' if self.fits else ', which is too much'}. A step of {layout.batch} sequences "
            f"takes {format_time(step.seconds)} (±{width:.0%}): {step.tflops:.0f} TFLOP/s per GPU, "
            f"MFU {step.mfu:.1%}, HFU {step.hfu:.1%}, bubble {step.bubble:.1%}."
        )


def _head(y: float, words: str) -> str:
    return svg.text(LEFT, y, words, anchor="start", bold=True, size=13)


def _stack(y: float, parts: Mapping[str, tuple[float, str]]) -> str:
    """Parts side by side, each named where there is room."""
    out, x = [], LEFT
    for words, (wide, color) in parts.items():
        if wide >= 0.5:
            out.append(svg.box(x, y, wide, TALL, fill=color, radius=1))
        if wide > 7.2 * len(words):
            ink = text_on(color)
            out.append(svg.text(x + wide / 2, y + 17, words, color=ink, size=12))
        x += wide
    return "".join(out)


def _legend(y: float, parts: Mapping[str, tuple[float, str]]) -> str:
    """What the bar has no room to name."""
    out, x = [], LEFT
    for words, (wide, color) in parts.items():
        if 0.5 <= wide <= 7.2 * len(words):
            out.append(svg.box(x, y - 10, 11, 11, fill=color, radius=2))
            out.append(svg.text(x + 16, y, words, anchor="start", size=11))
            x += 26 + 6.6 * len(words)
    return "".join(out)
