# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""How values are shown to people: units, and text from a log, which may hold anything."""

from __future__ import annotations

import datetime
import decimal
import math
from typing import Any

from klogger.durations import duration, three_digits

# unit -> what it is, for the documentation of columns
UNITS = {
    "": "text, or a number without a unit",
    "ns": "nanoseconds; shown as ns, µs, ms or s",
    "s": "seconds",
    "share": "a part of 1; shown in percent",
    "count": "a number of things, or an average of such numbers",
    "per_s": "times a second",
    "bytes": "bytes; shown as KiB, MiB, ...",
    "spark": "a list of numbers; shown as a row of small bars, in all rows on one scale",
}
# Names of what is there if nothing is: pictures have them pale.
NOTHING = ("none", "idle")
BLOCKS = " ▁▂▃▄▅▆▇█"
EIGHTHS = " ▏▎▍▌▋▊▉█"


def show(value: Any, unit: str = "", top: float | None = None) -> str:
    """A value as text, for terminal and page. `top`: what the highest bar of a spark stands for, if
    not its own greatest number.
    """
    if value is None:
        return ""
    if unit == "spark":
        return sparkline(value, top)
    if isinstance(value, list):
        return printable(", ".join(str(v) for v in value))
    if isinstance(value, bool) or not isinstance(value, (int, float, decimal.Decimal)):
        return printable(str(value))
    number = float(value)
    if not math.isfinite(number):
        return ""
    return show_number(value, number, unit)


def show_number(value: Any, number: float, unit: str) -> str:
    match unit:
        case "ns":
            return duration(number)
        case "s":
            return duration(number * 1e9)
        case "share":
            return f"{100 * number:.1f} %" if number == 0 or abs(number) >= 0.0005 else "<0.1 %"
        case "count":
            return (
                f"{round(number):,}"
                if number.is_integer() or abs(number) >= 100
                else average(number)
            )
        case "per_s":
            return f"{number:,.1f}/s" if number < 100 else f"{round(number):,}/s"
        case "bytes":
            return size(number)
        case _:
            return f"{number:.6g}" if isinstance(value, float) else str(value)


def average(number: float) -> str:
    """Of counts: 0.00224, 1.25, 12.3."""
    return f"{number:.3g}" if abs(number) >= 0.001 else "<0.001"


def size(number: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(number) < 1024:
            return f"{number:.0f} B" if unit == "B" else f"{three_digits(number)} {unit}"
        number /= 1024
    return f"{three_digits(number)} TiB"


def sparkline(values: Any, top: float | None = None) -> str:
    """One character a number; 0 is a blank, anything above it is at least the lowest bar."""
    numbers = numbers_of(values)
    top = max(numbers, default=0) if top is None else top
    if top <= 0:
        return ""
    return "".join(BLOCKS[math.ceil(min(n / top, 1) * 8)] if n > 0 else " " for n in numbers)


def numbers_of(spark: Any) -> list[float]:
    return [float(v or 0) for v in spark or []]


def bar(value: float, top: float, width: int) -> str:
    """A horizontal bar of at most `width` characters."""
    if top <= 0 or value <= 0:
        return ""
    eighths = max(1, round(min(value / top, 1) * width * 8))
    return "█" * (eighths // 8) + EIGHTHS[eighths % 8].strip()


def is_utf8(text: str) -> bool:
    """Whether it has no bytes of a file's name, or of an argument, that are no text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def printable(text: str) -> str:
    """Without characters that would act on a terminal."""
    # Nearly all texts have none, and there may be millions.
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def exact(value: decimal.Decimal) -> int | float | str | None:
    """A number of JSON if a reader gets the same number from it, else its digits as a text."""
    if not value.is_finite():
        return None
    if value == value.to_integral_value():
        return int(value)
    return float(value) if decimal.Decimal(repr(float(value))) == value else str(value)


def nearest(value: decimal.Decimal) -> int | float | None:
    """A number, which pictures and bars can be drawn from."""
    found = exact(value)
    return float(value) if isinstance(found, str) else found


def plain(value: Any, *, digits: bool = False) -> Any:
    """A value as JSON can have it. `digits`: a decimal that no float has stays exact, as a text;
    otherwise it is the nearest float.
    """
    kind = type(value)
    # Nearly all are of these, and there may be millions.
    if kind is int or kind is str or kind is bool or value is None:
        return value
    if kind is float:
        return value if math.isfinite(value) else None
    if isinstance(value, decimal.Decimal):
        return exact(value) if digits else nearest(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, (datetime.date, datetime.datetime, datetime.time, datetime.timedelta)):
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, (list, tuple)):
        return [plain(v, digits=digits) for v in value]
    if isinstance(value, dict):
        return {str(k): plain(v, digits=digits) for k, v in value.items()}
    return value if value is None or isinstance(value, (bool, int, float)) else str(value)
