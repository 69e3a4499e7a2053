"""Sliders for a model, a cluster and a layout; memory, step time and traffic follow at once."""

from __future__ import annotations

from typing import Any

import ipywidgets

from course_lib.layout import PRECISIONS, RECOMPUTE, Layout
from course_lib.plan import MODELS, answer, problem
from course_lib.plan.inputs.hardware import GPUS
from course_lib.plot.plan.plan_drawing import LayoutDrawing
from course_lib.plot.player.explorer import Explorer, live_html, refusal_html, rules, still_html
from course_lib.plot.player.picture import Picture
from course_lib.schedule import KINDS

DEGREES = (1, 2, 4, 8, 16, 32)
SEQUENCES = tuple(2**n for n in range(10, 18))
COUNTS = tuple(2**n for n in range(15))
SCHEDULES = tuple(name for name, kind in KINDS.items() if kind.wait)  # that a plan can have
START: dict[str, Any] = {
    "model": "llama3-70b",
    "sequence": 8192,
    "gpu": "H100",
    "gpus": 512,
    "batch": 1024,
    "tp": 8,
    "pp": 4,
    "cp": 1,
    "ep": 1,
    "micro_batch_size": 1,
    "zero": 1,
    "recompute": "none",
    "schedule": "1F1B",
    "chunks": 1,
    "precision": "bf16",
}
STILL = "cp-plan-still"
LINES = 3.6  # of the longest caption


def drawing(at: dict[str, Any]) -> LayoutDrawing:
    """The drawing for some settings.

    Args:
        at: by the names of START; dp is what is left of the GPUs.

    Raises:
        ValueError: the other degrees, or the micro-batches, are more than there is to cut.
    """
    asked = problem(
        at["model"], f"{at['gpus']}x{at['gpu']}", at["batch"], at["sequence"], at["precision"]
    )
    others = at["tp"] * at["pp"] * at["cp"] * at["ep"]
    pieces = at["gpus"] // others * at["ep"] * at["micro_batch_size"]
    if others > at["gpus"] or at["gpus"] % others or pieces > at["batch"]:
        raise ValueError(
            f"{at['gpus']} GPUs and {at['batch']} sequences cannot be cut so: tp · pp · cp · ep is "
            f"{others}, and every rank of dp and ep needs {at['micro_batch_size']} sequences"
        )
    split = at["schedule"] == "interleaved 1F1B"
    layout = Layout(
        pp=at["pp"],
        dp=at["gpus"] // others,
        ep=at["ep"],
        cp=at["cp"],
        tp=at["tp"],
        micro_batch_size=at["micro_batch_size"],
        micro_batches=at["batch"] // pieces,
        schedule=at["schedule"] if at["pp"] > 1 else "1F1B",
        chunks=max(2, at["chunks"]) if split and at["pp"] > 1 else 1,
        zero=at["zero"],
        recompute=at["recompute"],
        precision=at["precision"],
        sequence=at["tp"] > 1 and asked.config.moe is None,
    )
    if layout.batch != at["batch"]:
        raise ValueError(f"{at['batch']} sequences do not divide into pieces of {pieces}")
    return LayoutDrawing(asked, layout)


def draw(at: dict[str, Any]) -> tuple[Picture, str]:
    """The picture for some settings, and its caption.

    Raises:
        ValueError: there is no such layout.
    """
    picture = drawing(at).picture()
    return picture, picture.alt


def best(at: dict[str, Any]) -> dict[str, Any]:
    """The settings of the planner's first choice for the same model, cluster and batch.

    Raises:
        ValueError: nothing fits.
    """
    gpus = f"{at['gpus']}x{at['gpu']}"
    found = answer(at["model"], gpus, at["batch"], at["sequence"], at["precision"])
    if found.plan.best is None:
        raise ValueError("no layout fits: more GPUs, or larger ones, or offload")
    way = found.plan.best.layout
    names = ("tp", "pp", "cp", "ep", "micro_batch_size", "zero", "recompute", "schedule", "chunks")
    return {**at, **{name: getattr(way, name) for name in names}}


class PlanControls:
    """The sliders, and the picture that they change.

    Attributes:
        sliders: the controls by the name of what they set.
        view: the HTML that holds the picture, or the reason why there is none.
    """

    def __init__(self) -> None:
        look = {"layout": {"width": "290px"}, "style": {"description_width": "116px"}}
        slide, choose = ipywidgets.SelectionSlider, ipywidgets.Dropdown
        options = {
            "model": (choose, tuple(MODELS)),
            "sequence": (slide, SEQUENCES),
            "gpu": (choose, tuple(GPUS)),
            "gpus": (slide, COUNTS),
            "batch": (slide, COUNTS),
            "tp": (slide, DEGREES),
            "pp": (slide, (*DEGREES, 10, 20)),
            "cp": (slide, DEGREES),
            "ep": (slide, DEGREES),
            "micro_batch_size": (slide, (1, 2, 4, 8)),
            "zero": (slide, (0, 1, 2, 3)),
            "recompute": (choose, RECOMPUTE),
            "schedule": (choose, SCHEDULES),
            "chunks": (slide, (1, 2, 4)),
            "precision": (choose, PRECISIONS),
        }
        self.sliders: dict[str, Any] = {
            name: kind(
                options=sorted(values) if kind is slide else values,
                value=START[name],
                description=name,
                **look,
            )
            for name, (kind, values) in options.items()
        }
        self.view = ipywidgets.HTML()
        self.button = ipywidgets.Button(
            description="the planner's choice", layout={"width": "190px"}
        )
        self.button.on_click(self.take_best)
        for slider in self.sliders.values():
            slider.observe(self.show, names="value")
        self.show()

    def at(self) -> dict[str, Any]:
        """The settings."""
        return {name: slider.value for name, slider in self.sliders.items()}

    def show(self, _: object = None) -> None:
        """Draws again, or says why there is nothing to draw."""
        try:
            picture, words = draw(self.at())
        except ValueError as error:
            self.view.value = refusal_html(f"{error}.")
        else:
            self.view.value = live_html(picture, words, LINES)

    def take_best(self, _: object = None) -> None:
        """Moves the sliders to the planner's first choice, and draws once."""
        try:
            wanted = best(self.at())
        except ValueError as error:
            self.view.value = refusal_html(f"{error}.")
            return
        for slider in self.sliders.values():
            slider.unobserve(self.show, names="value")
        for name, slider in self.sliders.items():
            if wanted[name] not in slider.options:  # a degree that no slider has until now
                slider.options = sorted({*slider.options, wanted[name]})
            slider.value = wanted[name]
            slider.observe(self.show, names="value")
        self.show()

    def widget(self) -> ipywidgets.Widget:
        """Controls in two columns, and the picture below."""
        sliders = list(self.sliders.values())
        columns = [ipywidgets.VBox(sliders[:8]), ipywidgets.VBox(sliders[8:])]
        return ipywidgets.VBox([ipywidgets.HBox(columns), self.button, rules(STILL), self.view])


class PlanExplorer(Explorer):
    """What a cell shows whose last line is `explore_plan()`."""

    def html(self) -> str:
        """The picture at the sliders' start."""
        picture, words = draw(START)
        return still_html(STILL, picture, words, LINES)

    def controls(self) -> ipywidgets.Widget:
        """The sliders and their picture."""
        return PlanControls().widget()


def explore_plan() -> PlanExplorer:
    """Sliders for model, cluster, batch and layout, and a button for the planner's own choice."""
    return PlanExplorer()


def show_layout(name: str, gpus: str, layout: Layout, sequence: int | None = None) -> Picture:
    """One layout's picture, without sliders.

    Args:
        name: of a model in `MODELS`.
        gpus: the cluster, as `512xH100`.
        layout: how the model is spread.
        sequence: tokens in a sequence; the model's own if None.
    """
    return LayoutDrawing(problem(name, gpus, layout.batch, sequence), layout).picture()
