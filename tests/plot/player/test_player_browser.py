"""The player and the answer field in a real browser: keys, buttons, slider, several in one page."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from course_lib.plot import collective_steps, predict


@pytest.fixture
def show(browser) -> Iterator[object]:
    """`show(html)`: a page with it; at the end, nothing may have been an error or a request."""
    page, faults = browser.new_page(), []
    page.set_default_timeout(60_000)
    page.on("console", lambda m: faults.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("request", lambda r: None if r.url.startswith("data:") else faults.append(r.url))

    def load(html: str):
        page.set_content(f"<!doctype html><meta charset=utf-8><body>{html}")
        return page

    yield load
    page.close()
    assert faults == []


def test_keys_and_buttons_step_forwards_and_backwards(show, ring_record):
    player = collective_steps(ring_record)
    page = show(player._repr_html_())
    caption, slider = page.locator(".cp-caption"), page.locator("input[type=range]")
    captions = [frame.caption for frame in player.frames]
    assert caption.inner_text() == captions[player.still]
    slider.press("Home")
    for expected in captions[1:]:
        before = page.locator(".cp-stage").inner_html()
        page.keyboard.press("ArrowRight")
        assert caption.inner_text() == expected
        assert page.locator(".cp-stage").inner_html() != before
    page.keyboard.press("ArrowRight")  # stays at the end
    assert caption.inner_text() == captions[-1]
    page.get_by_label("Back", exact=True).click()
    assert caption.inner_text() == captions[-2]
    page.keyboard.press("ArrowLeft")  # the focus is on a button now
    assert caption.inner_text() == captions[-3]
    page.get_by_label("First").click()
    assert caption.inner_text() == captions[0]
    page.get_by_label("Forward").click()
    assert caption.inner_text() == captions[1]
    page.get_by_label("Last").click()
    assert slider.input_value() == str(len(captions) - 1)
    slider.fill("3")
    assert caption.inner_text() == captions[3]


def test_a_frame_in_the_page_is_the_frame_drawn_whole(show, ring_record):
    player = collective_steps(ring_record)
    page = show(player._repr_html_())
    page.locator("input[type=range]").press("End")
    parts = page.locator("[data-part]").evaluate_all("all => all.map(e => e.textContent)")
    whole = page.evaluate(
        "svg => [...new DOMParser().parseFromString(svg, 'image/svg+xml')"
        ".querySelectorAll('[data-part]')].map(e => e.textContent)",
        player.frame_svg(len(player.frames) - 1),
    )
    assert parts == whole


def test_play_runs_to_the_end_and_pause_stops_it(show, record, ring):
    page = show(collective_steps(record(2, ring(2)))._repr_html_())
    page.clock.install()
    page.locator("input[type=range]").press("Home")
    page.get_by_label("Play").click()
    page.clock.run_for(1300)
    page.get_by_label("Pause").click()
    page.clock.run_for(5000)
    assert page.locator(".cp-count").inner_text() == "2 / 4"
    page.get_by_label("Play").click()
    page.clock.run_for(10_000)
    assert page.locator(".cp-count").inner_text() == "4 / 4"
    assert page.get_by_label("Play").count() == 1


def test_two_players_in_a_page_do_not_meet(show, ring_record, record, ring):
    first, second = collective_steps(ring_record), collective_steps(record(2, ring(2)))
    page = show(first._repr_html_() + second._repr_html_() + first._repr_html_())
    page.locator("input[type=range]").nth(1).press("End")
    counts = page.locator(".cp-count").all_inner_texts()
    assert counts == [f"{first.still + 1} / 8", "4 / 4", f"{first.still + 1} / 8"]


OVERLAPS = """() => {
  const words = [...document.querySelectorAll('.cp-stage text')].filter(e => e.textContent);
  const boxes = words.map(e => e.getBoundingClientRect());
  return words.flatMap((word, i) => words.slice(i + 1).filter((_, k) => {
    const a = boxes[i], b = boxes[i + 1 + k];
    return Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1
      && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 4;
  }).map(other => word.textContent + ' | ' + other.textContent));
}"""


@pytest.mark.parametrize(
    "name",
    [
        "buckets",
        "residency",
        "stages",
        "split",
        "schedule",
        "ring",
        "numbers",
        "gradients",
        "recompute",
        "checkpoint",
        "dispatch",
        "explorer",
        "squares",
    ],
)
def test_words_do_not_overlap_in_any_frame(show, pictures, name):
    page = show(pictures[name]._repr_html_())
    page.locator("input[type=range]").press("Home")
    for _ in pictures[name].frames:
        assert page.evaluate(OVERLAPS) == []
        page.keyboard.press("ArrowRight")


OUTSIDE = """() => {
  const whole = document.querySelector('.cp-stage svg').getBoundingClientRect();
  return [...document.querySelectorAll('.cp-stage text')].filter(e => {
    const a = e.getBoundingClientRect();
    return e.textContent && (a.left < whole.left || a.right > whole.right
      || a.top < whole.top || a.bottom > whole.bottom);
  }).map(e => e.textContent);
}"""


@pytest.mark.parametrize("name", ["explorer", "squares"])
def test_words_are_inside_the_picture_in_every_frame(show, pictures, name):
    page = show(pictures[name]._repr_html_())
    page.locator("input[type=range]").press("Home")
    for frame in pictures[name].frames:
        assert page.locator(".cp-caption").inner_text() == frame.caption
        assert page.evaluate(OUTSIDE) == []
        page.keyboard.press("ArrowRight")


def test_charts_become_drawings_that_follow_the_theme(show, pictures):
    dark = "<style>:root{--jp-layout-color0:#111;--jp-ui-font-color1:#fff}</style>"
    page = show(dark + "".join(pictures[n]._repr_html_() for n in ("bytes", "lanes", "groups")))
    assert page.locator("svg[role=img]").count() == 3 and page.locator("img").count() == 0
    assert page.locator("svg[role=img]").first.get_attribute("aria-label") == pictures["bytes"].alt
    paper = page.locator("svg .paper").first.evaluate("e => getComputedStyle(e).fill")
    assert paper == "rgb(17, 17, 17)"


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("1.5", "Right: 1.5 MiB."),
        ("1,5 MiB", "Right: 1.5 MiB."),
        ("3/2", "Right: 1.5 MiB."),
        ("15e-1", "Right: 1.5 MiB."),
        ("3", "Not quite. That is both directions counted."),
        ("4.5", "Too high by a factor of 3."),
        ("0.15", "Too low by a factor of 10."),
        ("1.6", "Close: too high by 6.67 %."),
        ("0", "Too low."),
        ("-2", "Too low."),
        ("1/0", "That divides by zero."),
        ("1,500", "Is 1,500 1500 or 1.500? Write it with a point, or without commas."),
        ("two", "That is not a number. 1.5, 1,5, 3/2 and 12e6 are."),
        ("", "Write a number first."),
    ],
)
def test_answers_are_read_and_judged(show, typed, said):
    near = {3.0: "That is both directions counted."}
    page = show(predict("Bytes?", 1.5, "MiB", why="because", near=near)._repr_html_())
    page.get_by_label("Bytes?, in MiB").fill(typed)
    page.keyboard.press("Enter")
    assert page.get_by_role("status").inner_text() == said
    assert page.locator("details").evaluate("e => e.open") == said.startswith("Right")
