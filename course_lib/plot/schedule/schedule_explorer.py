"""Sliders for a pipeline's sizes and costs; the schedule is made, simulated and drawn again."""

from __future__ import annotations

from typing import Any

import ipywidgets

from course_lib.plot.player.explorer import Explorer, live_html, refusal_html, rules
from course_lib.plot.player.picture import Picture
from course_lib.plot.schedule.schedule_picture import schedule_picture
from course_lib.schedule import (
    SCHEDULES,
    Costs,
    ScheduleError,
    make_schedule,
    simulate,
)

CUT = ("ZB-H1", "ZB-V", "DualPipeV")  # those whose backward is in two halves
START: dict[str, Any] = {"kind": "1F1B", "p": 4, "m": 8, "v": 2, "ratio": 2.0, "share": 0.5}
RANGES = {  # least, most, step, words
    "p": (1, 8, 1, "p, ranks"),
    "m": (1, 16, 1, "m, micro-batches"),
    "v": (1, 4, 1, "v, chunks a rank"),
    "ratio": (0.5, 3.0, 0.1, "tB/tF"),
    "share": (0.0, 1.0, 0.1, "W's share of tB"),
}
STILL = "cp-explorer-still"


def explore(kind: str, p: int, m: int, v: int, ratio: float, share: float) -> Picture:
    """The picture of a schedule.

    Args:
        kind: a name in SCHEDULES.
        p: ranks.
        m: micro-batches.
        v: chunks a rank; only the interleaved schedule reads it.
        ratio: tB/tF, of a rank's whole part of the model.
        share: W's part of the backward, between 0 and 1.

    Raises:
        ScheduleError: the schedule cannot have these sizes.
    """
    schedule = make_schedule(kind, p, m, v)
    chunks = schedule.stages // schedule.ranks
    costs = Costs(1 / chunks, ratio * (1 - share) / chunks, ratio * share / chunks)
    title = f"tB = {ratio:g} tF" + (f", of which W {ratio * share:.3g} tF" if kind in CUT else "")
    return schedule_picture(simulate(schedule, costs), title=title)


def reason(error: ScheduleError) -> str:
    """Why a schedule cannot be, in one sentence."""
    return f"No {error.asked}, because {error.why}."


class Controls:
    """The sliders, and the picture that they change.

    Attributes:
        sliders: the controls by the name of what they set in `explore`.
        view: the HTML that holds the picture, or the reason why there is none.
    """

    def __init__(self) -> None:
        look = {"layout": {"width": "370px"}, "style": {"description_width": "150px"}}
        kinds = {"options": list(SCHEDULES), "value": START["kind"], "description": "schedule"}
        self.sliders = {"kind": ipywidgets.Dropdown(**kinds, **look)}
        for name, (least, most, step, words) in RANGES.items():
            make = ipywidgets.IntSlider if step == 1 else ipywidgets.FloatSlider
            span = {"min": least, "max": most, "step": step, "value": START[name]}
            self.sliders[name] = make(**span, description=words, **look)
        self.view = ipywidgets.HTML()
        for slider in self.sliders.values():
            slider.observe(self.show, names="value")
        self.show()

    def show(self, _: object = None) -> None:
        """Draws again, or says why there is nothing to draw."""
        at = {name: slider.value for name, slider in self.sliders.items()}
        self.sliders["v"].disabled = at["kind"] != "interleaved 1F1B"
        self.sliders["share"].disabled = at["kind"] not in CUT
        try:
            self.view.value = live_html(explore(**at))
        except ScheduleError as error:
            self.view.value = refusal_html(reason(error), 200)

    def widget(self) -> ipywidgets.Widget:
        """Controls in two columns, and the picture below."""
        sliders = list(self.sliders.values())
        columns = [ipywidgets.VBox(sliders[:3]), ipywidgets.VBox(sliders[3:])]
        return ipywidgets.VBox([ipywidgets.HBox(columns), rules(STILL), self.view])


class ScheduleExplorer(Explorer):
    """What a cell shows whose last line is `schedule_explorer()`."""

    def html(self) -> str:
        """The picture at the sliders' start."""
        return f'<div class="{STILL}">{explore(**START)._repr_html_()}</div>'

    def controls(self) -> ipywidgets.Widget:
        """The sliders and their picture."""
        return Controls().widget()


def schedule_explorer() -> ScheduleExplorer:
    """Sliders for the kind of schedule, p, m, v, tB/tF and W's share of the backward."""
    return ScheduleExplorer()
