"""A picture with controls: a still one for those who only read, a live one where a kernel runs.

Notebook: 08 Pipeline parallel, 13 3D parallelism.
Source: written for this course; ipywidgets for the controls.
Costs nothing; a widget is made only where somebody can move it.
The production version is a web application with a server of its own.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod

import ipywidgets
from IPython.display import display


class Explorer(ABC):
    """What a cell shows whose last line makes one.

    First a still picture, then the controls, whose own picture takes the still one's place. Pages
    without a kernel keep the still one. A notebook that is run to be kept (COURSE_LIVE=0) has it
    alone: a widget has a random number. The controls' output has no text, so both are alike.
    """

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    @abstractmethod
    def html(self) -> str:
        """The still picture, the same each time."""

    @abstractmethod
    def controls(self) -> ipywidgets.Widget:
        """Controls, and a picture whose style hides the still one: both would say the same."""

    def still(self) -> dict[str, str]:
        """The output that is the same each time."""
        return {"text/plain": repr(self), "text/html": self.html()}

    def _ipython_display_(self) -> None:
        """Shows the still picture, and the controls if there is somebody to move them."""
        display(self.still(), raw=True)
        if os.environ.get("COURSE_LIVE", "1") != "0":
            mime = "application/vnd.jupyter.widget-view+json"
            display({mime: self.controls()._repr_mimebundle_()[mime]}, raw=True)
