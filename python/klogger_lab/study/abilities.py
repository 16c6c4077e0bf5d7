# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What of a study this kernel can do: which of its schemata's events have a probe that attaches
here.
"""

from __future__ import annotations

import functools
from typing import Any

from klogger import program
from klogger.failure import Failure
from klogger.units import printable
from klogger_lab.study.discover import Found
from klogger_lab.study.runner import schema_word


def sentences(found: Found) -> list[str]:
    """One for each schema that the study records."""
    return [sentence(name, shown(schema_word(found, name))) for name in found.study.schemata]


@functools.cache
def shown(word: str) -> dict[str, Any] | str:
    """What `klogger show` says of a schema, or why it says nothing. Many studies share one."""
    try:
        found = program.answer("show", word, timeout=30)
    except Failure as failure:
        return failure.message
    return found if isinstance(found, dict) else "klogger show gave no JSON object"


def sentence(name: str, answer: dict[str, Any] | str) -> str:
    if isinstance(answer, str):
        return printable(f"{name}: cannot be recorded here: {answer}")
    if answer.get("kernel_error"):
        return printable(f"{name}: cannot be recorded here: {answer['kernel_error']}")
    probes = [p for p in answer.get("probes", []) if isinstance(p, dict)]
    able = {event for p in probes if p.get("attaches") for event in p.get("events", [])}
    unable = {
        event for p in probes if not p.get("attaches") for event in p.get("events", [])
    } - able
    missing = sum(not p.get("attaches") for p in probes)
    if not probes:
        return f"{name}: logged by programs"
    text = f"{name}: all {len(probes)} probes attach here"
    if missing:
        text = f"{name}: {len(probes) - missing} of {len(probes)} probes attach here"
    if unable:
        text += f"; this kernel cannot log {', '.join(sorted(unable))}"
    return printable(text)
