"""Sliders for a mesh: sizes, nodes, which axis is innermost, and whose groups are lit."""

from __future__ import annotations

from typing import Any

import ipywidgets

from course_lib.plot.mesh.mesh_explorer import MeshDrawing
from course_lib.plot.mesh.mesh_groups import AXES, MeshGroups
from course_lib.plot.player.explorer import Explorer, live_html, refusal_html, rules, still_html
from course_lib.plot.player.picture import Picture
from course_lib.trace import Refusal

SIZES = (1, 2, 3, 4, 6, 8, 16)
PLACES = "none: places alone"
SHOWN = (PLACES, "tp", "cp", "ep", "dp", "pp", "dp_ep_cp", "dp_cp")
START: dict[str, Any] = {
    "pp": 2,
    "dp": 2,
    "ep": 1,
    "cp": 1,
    "tp": 4,
    "per_node": 8,
    "innermost": "tp",
    "shown": "tp",
    "rank": 0,
}
STILL = "cp-mesh-still"
LINES = 4.4  # of the longest caption


def draw(at: dict[str, Any]) -> tuple[Picture, str]:
    """The picture for some settings, and its caption.

    Args:
        at: the size of each axis by its name; `per_node`, `innermost`, `shown`, `rank` as in START.

    Raises:
        Refusal: there are too many ranks or nodes.
    """
    order = [axis for axis in AXES if axis != at["innermost"]] + [at["innermost"]]
    mesh = MeshGroups({axis: at[axis] for axis in order}, at["per_node"])
    drawing = MeshDrawing(mesh, min(at["rank"], mesh.world - 1), {})
    axes = mesh.named(at["shown"]) if at["shown"] != PLACES else ()
    frame = drawing.frame(axes) if axes else drawing.first()
    words = frame.caption
    if not axes and at["shown"] != PLACES:
        words = f"{at['shown'].replace('_', ' × ')} has size 1: no groups to show. {words}"
    player = drawing.player([frame])
    return Picture(player.frame_svg(0), words, player.title), words


def reason(error: Refusal) -> str:
    """Why there is no picture, in one sentence."""
    return f"This cannot be {error.asked}: there is {error.found}, as {error.why}."


class MeshControls:
    """The sliders, and the picture that they change.

    Attributes:
        sliders: the controls by the name of what they set in `draw`.
        view: the HTML that holds the picture, or the reason why there is none.
    """

    def __init__(self) -> None:
        look = {"layout": {"width": "300px"}, "style": {"description_width": "110px"}}
        slide, choose = ipywidgets.SelectionSlider, ipywidgets.Dropdown
        self.sliders: dict[str, Any] = {
            axis: slide(options=SIZES, value=START[axis], description=axis, **look)
            for axis in reversed(AXES)
        }
        self.sliders["innermost"] = choose(
            options=AXES[::-1], value=START["innermost"], description="innermost axis", **look
        )
        self.sliders["per_node"] = slide(
            options=(1, 2, 4, 8, 16), value=START["per_node"], description="ranks per node", **look
        )
        self.sliders["shown"] = choose(
            options=SHOWN, value=START["shown"], description="groups of", **look
        )
        self.sliders["rank"] = ipywidgets.IntSlider(
            value=START["rank"], min=0, max=15, description="rank", **look
        )
        self.view = ipywidgets.HTML()
        for slider in self.sliders.values():
            slider.observe(self.show, names="value")
        self.show()

    def show(self, _: object = None) -> None:
        """Draws again, or says why there is nothing to draw."""
        at = {name: slider.value for name, slider in self.sliders.items()}
        try:
            picture, words = draw(at)
        except Refusal as error:
            self.view.value = refusal_html(reason(error))
        else:
            self.view.value = live_html(picture, words, LINES)
        self._limit(at)

    def _limit(self, at: dict[str, Any]) -> None:
        """The last rank of the mesh is the rank slider's end."""
        last = -1 + at["pp"] * at["dp"] * at["ep"] * at["cp"] * at["tp"]
        if self.sliders["rank"].max != last:
            self.sliders["rank"].max = last

    def widget(self) -> ipywidgets.Widget:
        """Controls in two columns, and the picture below."""
        sliders = list(self.sliders.values())
        columns = [ipywidgets.VBox(sliders[:5]), ipywidgets.VBox(sliders[5:])]
        return ipywidgets.VBox([ipywidgets.HBox(columns), rules(STILL), self.view])


class MeshExplorer(Explorer):
    """What a cell shows whose last line is `explore_mesh()`."""

    def html(self) -> str:
        """The picture at the sliders' start."""
        picture, words = draw(START)
        return still_html(STILL, picture, words, LINES)

    def controls(self) -> ipywidgets.Widget:
        """The sliders and their picture."""
        return MeshControls().widget()


def explore_mesh() -> MeshExplorer:
    """Sliders for the sizes of a mesh, its nodes, its innermost axis and the rank that is lit."""
    return MeshExplorer()
