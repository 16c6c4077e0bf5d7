# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Numbers of devices, as fields `as device` have them: the kernel's own `dev_t`. And the names of
those that are disks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from klogger.sqltext import literal

# The low bits are the minor number.
MINOR_BITS = 20
MINOR_MAX = (1 << MINOR_BITS) - 1
DISKS_MAX = 1000


def number(major: int, minor: int) -> int:
    return major << MINOR_BITS | minor


def split(device: int) -> tuple[int, int]:
    """Its major and its minor number."""
    return device >> MINOR_BITS, device & MINOR_MAX


def text(device: int) -> str:
    major, minor = split(device)
    return f"{major}:{minor}"


def text_sql(device: str) -> str:
    """The same in SQL. `device`: an expression whose value is not negative."""
    return f"({device} >> {MINOR_BITS})::VARCHAR || ':' || ({device} & {MINOR_MAX})::VARCHAR"


def disk_names(preamble: Mapping[str, Any]) -> dict[int, str]:
    """By device number, the names of block devices in the preamble, which may hold anything."""
    host = preamble.get("host")
    listed = host.get("disks") if isinstance(host, dict) else None
    found = {}
    for one in listed[:DISKS_MAX] if isinstance(listed, list) else []:
        if isinstance(one, list) and len(one) == 2 and all(isinstance(x, str) for x in one):
            numbers = re.fullmatch(r"(\d{1,4}):(\d{1,7})", one[0], re.ASCII)
            if numbers and re.fullmatch(r"[!-~]{1,64}", one[1]):
                found[number(int(numbers[1]), int(numbers[2]))] = one[1]
    return found


def disk(names: Mapping[int, str], device: int) -> str:
    """A device's name, or else its number."""
    return names.get(device) or text(device)


def disk_sql(names: Mapping[int, str]) -> str:
    """The same as a function of SQL."""
    found = "klogger.device(x)"
    if names:
        keys = ", ".join(f"{key}: {literal(name)}" for key, name in names.items())
        found = f"coalesce(map_extract(MAP {{{keys}}}, TRY_CAST(x AS BIGINT))[1], {found})"
    return f"CREATE OR REPLACE MACRO klogger.disk(x) AS {found}"
