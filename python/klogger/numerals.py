# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Singular and plural in sentences that analyses make of a number and a noun."""

from __future__ import annotations

import re

# A whole number of one, not the end of 21, 0.1 or 1,001; a noun in the plural; and the verb that
# agrees with it.
ONE = re.compile(r"(?<![\w.,:/-])1 ([a-z]{4,}s)\b(?:( that)? (were|are|have|wait))?(?![\w/-])")
VERBS = {"were": "was", "are": "is", "have": "has", "wait": "waits"}
# They end in s and are no plural, or are verbs after a name.
OTHERS = frozenset(("across", "always", "does", "goes", "less", "minus", "plus", "process", "this"))


def agreed(sentence: str) -> str:
    """`1 files were opened 1 times` as `1 file was opened 1 time`."""
    return ONE.sub(lambda found: _one(found) or found[0], sentence)


def _one(found: re.Match[str]) -> str | None:
    noun, that, verb = found[1], found[2] or "", found[3]
    if noun in OTHERS or noun.endswith("ss"):
        return None
    return f"1 {_singular(noun)}" + (f"{that} {VERBS[verb]}" if verb else "")


def _singular(noun: str) -> str:
    if noun.endswith("ies"):
        return noun[:-3] + "y"
    if noun.endswith(("sses", "xes", "ches", "shes")):
        return noun[:-2]
    return noun[:-1]
