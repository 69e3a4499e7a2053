"""The player: frames computed beforehand, stepped through by key, button or slider."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from course_lib.plot.player.live import live_script
from course_lib.plot.player.picture import FIT, Picture
from course_lib.plot.player.style import ROLE_CSS
from course_lib.plot.player.svg import Point, data_uri, document, number
from course_lib.trace import Refusal

BAR_CSS = (
    ROLE_CSS + ".cp-stage svg{" + FIT + "}"
    ".cp-bar{display:flex;align-items:center;gap:4px;max-width:640px;margin:6px 0 0}"
    ".cp-bar button{width:34px;height:30px;padding:0;border:1px solid var(--cp-line);"
    "border-radius:5px;background:var(--cp-panel);cursor:pointer;line-height:1}"
    ".cp-bar button path{fill:var(--cp-ink)}"
    ".cp-bar button[aria-disabled=true]{opacity:.4;cursor:default}"
    ".cp-bar input{flex:1;min-width:80px;height:6px;margin:0 8px;appearance:none;"
    "border-radius:3px;background:var(--cp-line)}"
    ".cp-bar input::-webkit-slider-thumb{appearance:none;width:18px;height:18px;"
    "border-radius:50%;background:#0072B2}"
    ".cp-bar input::-moz-range-thumb{width:18px;height:18px;border:0;"
    "border-radius:50%;background:#0072B2}"
    ".cp-bar :focus-visible{outline:3px solid #56B4E9;outline-offset:1px}"
    ".cp-count{opacity:.75;font-size:13px;font-variant-numeric:tabular-nums}"
    ".cp-caption{font-size:14px;line-height:1.45;min-height:2.9em;"
    "max-width:760px;margin:0;padding:8px 0 0}"
)


@dataclass(frozen=True)
class Frame:
    """One position of a player.

    Attributes:
        parts: SVG of each part of the picture, in the order of the player's `places`.
        caption: what is to be seen, in a sentence or two.
    """

    parts: tuple[str, ...]
    caption: str


class Player:
    """Frames of one picture and the controls to step through them.

    Args:
        size: width and height of the picture, in pixels.
        background: SVG that is the same in all frames.
        places: where each part of a frame is put: its origin.
        frames: at least one.
        title: what is shown, in a few words.
        alt: the whole story for a reader who cannot see it.
        still: index of the frame to begin with, and of the image that stays without scripts.

    Raises:
        Refusal: there is no frame, or a frame has not one part a place.
    """

    def __init__(
        self,
        size: tuple[float, float],
        background: str,
        places: Sequence[Point],
        frames: Sequence[Frame],
        *,
        title: str,
        alt: str,
        still: int = 0,
    ) -> None:
        if not frames or any(len(frame.parts) != len(places) for frame in frames):
            raise Refusal(
                f"a player of {len(frames)} frames with {len(places)} parts each",
                f"parts: {[len(frame.parts) for frame in frames]}",
                "every frame says what each place shows, and there is at least one frame",
            )
        self.size = size
        self.background = background
        self.places = list(places)
        self.frames = list(frames)
        self.title = title
        self.alt = alt
        self.still = still % len(frames)

    def __repr__(self) -> str:
        return f"Player({self.title}, {len(self.frames)} frames)"

    def frame_svg(self, index: int) -> str:
        """One frame as a whole SVG document."""
        frame = self.frames[index]
        return self._draw(frame.parts, f"{self.title}. {frame.caption}")

    def _draw(self, parts: Sequence[str], alt: str) -> str:
        placed = "".join(
            f'<g data-part="" transform="translate({number(x)} {number(y)})">{part}</g>'
            for (x, y), part in zip(self.places, parts, strict=True)
        )
        return document(*self.size, self.background + placed, alt)

    def film(self) -> dict[str, Any]:
        """What the script needs: the picture without parts, all different parts, and the frames."""
        table = {part: None for frame in self.frames for part in frame.parts}
        where = {part: index for index, part in enumerate(table)}
        return {
            "title": self.title,
            "still": self.still,
            "css": BAR_CSS,
            "picture": self._draw([""] * len(self.places), self.title),
            "table": list(table),
            "frames": [[where[part] for part in frame.parts] for frame in self.frames],
            "captions": [frame.caption for frame in self.frames],
        }

    def _repr_html_(self) -> str:
        """What the notebook shows: an image and a caption, of which the script makes a player.

        A single frame stays a picture.
        """
        still = self.frames[self.still]
        if len(self.frames) == 1:
            picture = Picture(self.frame_svg(0), self.alt, self.title)
            return f"{picture._repr_html_()}<p>{escape(still.caption)}</p>"
        return (
            f'<div class="cp cp-player" role="group" aria-label="{escape(self.title)}" '
            f'data-lm-suppress-shortcuts="true">'
            f'<img alt="{escape(self.alt)}" style="{FIT}" '
            f'src="{data_uri(self.frame_svg(self.still))}">'
            f"<p>{escape(still.caption)}</p></div>{live_script('player', self.title, self.film())}"
        )
