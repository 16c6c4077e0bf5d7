# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A claim, and whether it is true of a log.

It is checked by asking again, and making the same claim again: each part must be the same. Before
that, each event that it names is looked for in the log.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from klogger.claims import asked, evidence
from klogger.claims.asked import Found, Table
from klogger.claims.stated import as_json, cut
from klogger.failure import Failure
from klogger.identity import uuid_of
from klogger.log import Log

VERSION = 1
# Where the log was when the claim was made: not a part of what it says.
PLACE = "file"
PARTS = ("claim", "log", "by", "value", "events", "ledger")
PATH_MAX = 300


@dataclass(frozen=True)
class Refuted:
    """`part`: of the claim that is not so, as value.rows[3][1]."""

    part: str
    why: str


def of(
    log: Log,
    by: Mapping[str, Any],
    found: Found,
    row: int,
    count: int = 1,
    ledger: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The claim about an item, or about so many rows from `row` on. `ledger`: its state, if that is
    known already.
    """
    if isinstance(found, Table):
        value, events = found.value(row, count), found.events(row, count)
    else:
        value, events = found.values[row], found.events(row)
    file = str(log.path.absolute())
    return {
        "claim": VERSION,
        "log": uuid_of(log.preamble),
        **({PLACE: file} if len(as_json(file)) <= PATH_MAX and file.isprintable() else {}),
        "by": {**by, "row": row},
        "value": value,
        "events": events,
        "ledger": ledger or evidence.state(log),
    }


def claims_in(text: str) -> list[dict[str, Any]]:
    """A claim, or the claims of an answer of `klogger mcp`."""
    try:
        found = json.loads(text, object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        raise Failure(f"not JSON: {str(error).splitlines()[0]}") from None
    if isinstance(found, dict) and "claim" not in found:
        found = found.get("claims", found.get("findings", found))
    listed = found if isinstance(found, list) else [found]
    for one in listed:
        if not isinstance(one, dict) or "claim" not in one:
            raise Failure("there is no claim in it", help="docs/mcp.md says what a claim has")
        if as_json_or_none(one["claim"]) != as_json(VERSION):
            raise Failure(
                f"a claim of the form {cut(str(one['claim']), 40)}, which this klogger does not"
                " know",
                help=f"it knows the form {VERSION}",
            )
        by = one.get("by")
        if not isinstance(by, dict) or by.get("kind") not in tuple(asked.KEYS):
            raise Failure("the claim does not say by what it was found, in a way that is known")
    if not listed:
        raise Failure("there is no claim in it", help="an answer without claims says nothing")
    return listed


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Of two values of one key, a reader may see the one that is not checked."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice in one object")
    return found


def as_json_or_none(value: Any) -> str | None:
    """NaN and infinity are in no claim."""
    try:
        return as_json(value)
    except ValueError:
        return None


# Answers by their questions: several claims may be of one.
Answers = dict[str, Found]


def check(log: Log, claim: Mapping[str, Any], known: Answers | None = None) -> list[Refuted]:
    """What of a claim is not so; empty: it is verified. `known`: answers of this log."""
    own = uuid_of(log.preamble)
    if claim.get("log") != own:
        return [Refuted("log", f"this log has the UUID {own}")]
    events = claim.get("events")
    first = events.get("first") if isinstance(events, dict) else None
    listed = first if isinstance(first, list) else []
    missing = [
        Refuted(f"events.first[{number}]", f"the log has no such event: {cut(str(place), 80)}")
        for number, place in enumerate(listed[: evidence.FIRST])
        if not evidence.is_there(log, place)
    ]
    if len(listed) > evidence.FIRST:
        missing.append(Refuted("events.first", f"has more than {evidence.FIRST} events"))
    try:
        made = again(log, claim, {} if known is None else known)
    except Failure as failure:
        return [*missing, Refuted("by", failure.message)]
    keys = [key for key in (*made, *claim) if key != PLACE]
    told = {one.part for one in missing}
    for key in dict.fromkeys(keys):
        missing += [
            one
            for one in differences(key, claim.get(key, NOTHING), made.get(key, NOTHING))
            if one.part not in told
        ]
    return missing


def again(log: Log, claim: Mapping[str, Any], known: Answers) -> dict[str, Any]:
    """What the same question gives now. Raises Failure if it gives nothing."""
    by = dict(claim["by"])
    row = by.pop("row", None)
    if type(row) is not int or row < 0:
        raise Failure("'row' is not a number of a row")
    key = as_json_or_none(by)
    found = known[key] if key in known else asked.find(log, by)
    if key is not None:
        known[key] = found
    count = 1
    if isinstance(found, Table):
        value = claim.get("value")
        rows = value.get("rows") if isinstance(value, dict) else None
        count = len(rows) if isinstance(rows, list) else 1
        there = len(found.rows)
    else:
        there = len(found.values)
    if row + (count if isinstance(found, Table) else 1) > there:
        raise Failure(f"the answer has {there} rows, not row {row + max(count, 1) - 1}")
    return of(log, by, found, row, count)


class Nothing:
    def __repr__(self) -> str:
        return "nothing"


NOTHING = Nothing()


def differences(part: str, said: Any, now: Any) -> list[Refuted]:
    """The innermost parts that are not equal: 1, 1.0 and true are different."""
    if isinstance(said, dict) and isinstance(now, dict):
        return [
            one
            for key in dict.fromkeys((*now, *said))
            for one in differences(f"{part}.{key}", said.get(key, NOTHING), now.get(key, NOTHING))
        ]
    if isinstance(said, list) and isinstance(now, list) and len(said) == len(now):
        return [
            one
            for number, pair in enumerate(zip(said, now, strict=True))
            for one in differences(f"{part}[{number}]", *pair)
        ]
    if type(said) is type(now) and said == now:
        return []
    return [Refuted(part, f"the claim says {shown(said)}, the log {shown(now)}")]


def shown(value: Any) -> str:
    return cut(repr(value), 120)
