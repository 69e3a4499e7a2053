"""Numbers of any size in a few characters: 70,144, 1.0605, 5.96·10⁻⁸, 2⁻²⁴, 6.1 %."""

from __future__ import annotations

import math

THIN = "\u202f"  # a space at which no line is broken
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def power_of_two(exponent: int) -> str:
    """`2⁻²⁴`."""
    return "2" + str(exponent).translate(RAISED)


def plain(value: float, digits: int = 5) -> str:
    """A number that is not negative, to `digits` digits; all digits of an integer below 10⁹.

    Below 0.0001 and from 10⁹ on it is written with a power of ten.
    """
    if value == 0 or math.isinf(value):
        return "∞" if value else "0"
    if 1e-4 <= value < 1e9:
        before = math.floor(math.log10(value)) + 1
        text = f"{value:,.{max(0, digits - before)}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    front, _, exponent = f"{value:.{digits - 1}e}".partition("e")
    front = front.rstrip("0").rstrip(".") if "." in front else front
    ten = "10" + str(int(exponent)).translate(RAISED)
    return ten if front == "1" else f"{front}·{ten}"


def percent(part: float, whole: float = 1.0) -> str:
    """`6.1 %`, to two digits; never `0 %` or `100 %` unless it is exactly that."""
    share = part / whole if whole else 0.0
    if 0.995 <= share < 1:
        tenths = math.floor(1000 * share) / 10
        return f"{tenths:.3g}{THIN}%" if share < 0.999 else f"over 99.9{THIN}%"
    digits = 3 if share >= 0.1 else 2
    return f"{plain(100 * share, digits)}{THIN}%"


def tenths(part: float, whole: float) -> str:
    """`6.1 %`, to a tenth; for counts of measured numbers, whose last ones rounding decides.

    `under 0.1 %` and `over 99.9 %` where `0 %` and `100 %` would not be exactly that.
    """
    digits = f"{100 * part / whole if whole else 0.0:.1f}".removesuffix(".0")
    if digits == "0" and part:
        digits = "under 0.1"
    if digits == "100" and part < whole:
        digits = "over 99.9"
    return f"{digits}{THIN}%"
