"""The score card as HTML for a notebook: no script, no ids, colours that show on light and dark."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

from course_lib.grade.report.card import Card, CheckResult
from course_lib.grade.report.words import MARKS, below, details, fault_lines, headline

# Okabe–Ito's blue and vermillion: told apart by colour-blind readers, on light and on dark.
HTML_COLOURS = {"passed": "#0072B2", "failed": "#D55E00", "not_run": "#888888"}


def as_html(card: Card, *, hint: str = "%hint") -> str:
    """The card for a notebook; no script, no ids, colours that show on light and dark."""
    rows = []
    if card.status == "not_written" and not card.score:
        pass  # one sentence says it all
    elif card.fault is not None:
        rows.append(_html_row("failed", "", _html_lines(fault_lines(card.fault))))
    else:
        seen: dict[tuple[str, ...], int] = {}
        for number, result in enumerate(card.checks, 1):
            rows.append(_html_check(result, number, seen))
    foot = "".join(f"<div>{_html_code(line)}</div>" for line in below(card, hint))
    bar = _html_bar(card)
    return (
        f'<div style="font-family:var(--jp-ui-font-family,sans-serif);line-height:1.45">'
        f"<div><b>{html.escape(headline(card))}</b></div>{bar}"
        f'<table style="border-collapse:collapse;text-align:left">{"".join(rows)}</table>'
        f"{foot}</div>"
    )


def _html_check(result: CheckResult, number: int, seen: dict[tuple[str, ...], int]) -> str:
    check = result.check
    title = f"{html.escape(check.title)} <code>{check.code}</code>"
    if result.state == "failed":
        title += _html_lines(details(result, seen, number))
    if result.state == "not_run":
        title += " (not run)"
    return _html_row(result.state, f"{number}.&nbsp;{result.score}/{check.points}", title)


def _html_code(line: str) -> str:
    """A sentence in which `code` stands between backticks."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", html.escape(line))


def _html_row(state: str, points: str, body: str) -> str:
    cell = 'style="padding:2px 8px;vertical-align:top;text-align:left"'
    colour = HTML_COLOURS[state]
    return (
        f'<tr style="background:none"><td {cell}><b style="color:{colour}">{MARKS[state]}</b></td>'
        f"<td {cell}>{points}</td><td {cell}>{body}</td></tr>"
    )


def _html_lines(lines: Iterable[str]) -> str:
    text = html.escape("\n".join(lines))
    style = "margin:2px 0 4px;padding-left:8px;border-left:3px solid #D55E00;background:none"
    return f'<pre style="{style};white-space:pre-wrap">{text}</pre>'


def _html_bar(card: Card) -> str:
    part = 100 * (card.score or 0) // max(1, card.points)
    return (
        '<div style="width:16em;height:6px;border:1px solid #888;margin:3px 0">'
        f'<div style="width:{part}%;height:100%;background:#0072B2"></div></div>'
    )
