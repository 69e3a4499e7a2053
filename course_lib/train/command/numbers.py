"""Every number of a command line is one that a run can be made with.

Source: the limits stand beside the options, in `config.py`.
Costs nothing.
The production version finds a learning rate of nan when the loss is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from math import isfinite
from typing import Any

from course_lib.trace import Refusal

MOST = 2**31 - 1  # of a count, which torch and numpy take everywhere


def wrong_numbers(config: Any) -> Iterator[Refusal]:
    """The numbers of a run that cannot be, in the order of its options.

    Args:
        config: a dataclass whose fields are made by `option`.
    """
    for each in fields(config):
        value = getattr(config, each.name)
        flag = f"--{each.metadata['flag'] or each.name}".replace("_", "-")
        kind = type(each.default)
        if kind is not str and type(value) not in ((int, float) if kind is float else (kind,)):
            why = f"this option is of {kind.__name__}"
            yield Refusal(f"{flag} {value!r}", f"a value of {type(value).__name__}", why)
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        wrong = _wrong(value, each.metadata)
        if wrong is not None:
            yield Refusal(f"{flag} {value}", *wrong)


def _wrong(value: float, limits: Any) -> tuple[str, str] | None:
    """What is wrong with a number, and why it is refused."""
    if isinstance(value, float) and not isfinite(value) and not (limits["endless"] and value > 0):
        return "no finite number", "a step would turn every weight into no number"
    least = limits["least"]
    if least is not None and value < least:
        why = "there is at least one of these" if least == 1 else "it counts or measures something"
        return f"a number below {least}", why
    if isinstance(value, float) and limits["above"] is not None and value <= limits["above"]:
        return f"not above {limits['above']:g}", "nothing would move"
    if limits["below"] is not None and value >= limits["below"]:
        return f"not below {limits['below']:g}", "what came before would never fade"
    most = limits["most"]
    if most is not None and value > most:
        return f"a number above {most}", "what is computed from it would be infinite"
    if isinstance(value, int) and value > MOST:
        return f"a number above {MOST}", "numbers of a run fit into 31 bits"
    return None
