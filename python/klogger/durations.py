# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Durations as text, with three digits that matter: 999 ns, 1.23 ms, 12.3 ms, 123 ms. SQL, pictures
and pages have functions of their own for it, which are all made from the two tables here.
"""

from __future__ import annotations

import json

# From this many ns on, rounded, the next unit is used; the unit in ns; and its name. Then seconds.
UNITS = ((999.5, 1.0, "ns"), (999.5e3, 1e3, "µs"), (999.5e6, 1e6, "ms"))
SECOND = 1e9
# From this number on, it has so many decimals; below the last it has two.
DECIMALS = ((99.95, 0), (9.995, 1))
MOST_DECIMALS = 2


def duration(ns: float) -> str:
    for limit, factor, unit in UNITS:
        if abs(ns) < limit:
            return f"{three_digits(ns / factor) if factor > 1 else f'{ns:.0f}'} {unit}"
    return f"{three_digits(ns / SECOND)} s"


def three_digits(x: float) -> str:
    for limit, decimals in DECIMALS:
        if abs(x) >= limit:
            return f"{x:,.{decimals}f}"
    return f"{x:.{MOST_DECIMALS}f}"


def sql() -> str:
    """The macros `klogger.three_digits` and `klogger.duration`."""
    digits = "".join(
        f"WHEN abs(x) >= {limit} THEN format('{{:.{n}f}}', x) " for limit, n in DECIMALS
    )
    units = "".join(
        f"WHEN abs(ns) < {limit} THEN "
        + (
            f"klogger.three_digits(ns / {factor}) || ' {unit}' "
            if factor > 1
            else f"format('{{:.0f}} {unit}', ns::DOUBLE) "
        )
        for limit, factor, unit in UNITS
    )
    return (
        "CREATE MACRO klogger.three_digits(x) AS"
        f" CASE {digits}ELSE format('{{:.{MOST_DECIMALS}f}}', x) END;\n"
        "CREATE MACRO klogger.duration(ns) AS"
        f" CASE {units}ELSE klogger.three_digits(ns / {SECOND}) || ' s' END;\n"
    )


def vega(ns: str) -> str:
    """An expression for a number of ns on an axis, as `10 µs`: with no more digits than it has."""
    steps = "".join(
        f"abs({ns}) < {limit} ? format(({ns}) / {factor}, '.5~r') + ' {unit}' : "
        for limit, factor, unit in UNITS
    )
    return f"({ns}) == 0 ? '0' : {steps}format(({ns}) / {SECOND}, ',.5~r') + ' s'"


def script() -> str:
    """The tables, for the script of a page."""
    tables = {"units": UNITS, "second": SECOND, "decimals": DECIMALS, "most": MOST_DECIMALS}
    return f"const DURATIONS = {json.dumps(tables, ensure_ascii=False)};"
