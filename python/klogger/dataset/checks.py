# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What is wrong with a dataset, and what differs between its recordings."""

from __future__ import annotations

import datetime
import hashlib
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from klogger.dataset import MANIFEST, Dataset, Entry, cache, index
from klogger.dataset.store import Local
from klogger.folder import RECORDINGS, Part

NAMES_MAX = 4
# The columns of a table, with their types.
Form = tuple[tuple[str, str], ...]
# Of the tables of a schema: how many recordings have which columns.
Forms = dict[tuple[str, str], Counter[Form]]
# A clock that is this wrong was never set: before the first klogger, or far in the future.
CLOCK_FROM, CLOCK_TO = 1_600_000_000 * 10**9, 4_000_000_000 * 10**9


@dataclass
class Checked:
    """`damage`: answers may be wrong; `remarks`: what must be known when they are read; `stray`:
    files that belong to no recording.
    """

    damage: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    stray: list[str] = field(default_factory=list)


def check(dataset: Dataset, *, content: bool = True) -> Checked:
    """`content`: all files are read, and compared with their checksums."""
    entries = dataset.entries()
    found = Checked(damage=list(dataset.unreadable.values()))
    files = dataset.store.files()
    for entry in entries:
        for part in entry.parts:
            if part.path and (what := fault(dataset, part, files, content=content)):
                found.damage.append(f"{part.path}: {what}")
        if str(entry.said["meta"]) not in files:
            found.damage.append(f"{entry.said['meta']}: missing")
    found.remarks = [*differences(entries), *derived(entries), *clocks(entries)]
    known = {MANIFEST} | {name for e in entries for name in (e.name, *e.files())}
    known |= {f"{RECORDINGS}/{log}.json" for log in dataset.unreadable}
    found.stray = sorted(n for n in files.keys() - known if not n.startswith(f"{cache.FOLDER}/"))
    return found


def fault(dataset: Dataset, part: Part, files: dict[str, int], *, content: bool) -> str:
    """What is wrong with a file; empty: nothing is."""
    if part.path not in files:
        return "missing"
    if files[part.path] != part.bytes:
        return f"{files[part.path]:,} bytes instead of {part.bytes:,}"
    if content and read(dataset, part.path) != part.sha256:
        return "its content is not what was written"
    return ""


def read(dataset: Dataset, name: str) -> str:
    """The checksum of a file."""
    if isinstance(dataset.store, Local):
        with (dataset.store.folder / name).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    with tempfile.TemporaryDirectory(prefix="klogger-") as folder:
        dataset.store.fetch(name, Path(folder) / "file")
        return hashlib.sha256((Path(folder) / "file").read_bytes()).hexdigest()


def differences(entries: Iterable[Entry]) -> list[str]:
    """Events of one name that have other columns in other recordings, which are joined by name."""
    forms: Forms = defaultdict(Counter)
    schemata: dict[str, dict[str, int]] = defaultdict(dict)
    # Thousands of recordings may share the forms of their events.
    shared: dict[int, tuple[index.Forms, int]] = {}
    for entry in entries:
        own = index.forms_of(entry.said)
        shared[id(own)] = (own, shared.get(id(own), (own, 0))[1] + 1)
        for schema, text in entry.said["schemata"].items():
            schemata[schema][text] = schemata[schema].get(text, 0) + 1
    for of_events, count in shared.values():
        for key, form in of_events.items():
            forms[key][form] += count
    found = []
    for schema, texts in sorted(schemata.items()):
        if len(texts) > 1:
            counts = ", ".join(str(n) for n in sorted(texts.values(), reverse=True))
            found.append(f"schema {schema}: {len(texts)} versions, of {counts} recordings")
    return found + unlike(forms)


def unlike(forms: Forms) -> list[str]:
    return [
        f"{schema}: {name}: {differing(known)}"
        for (schema, name), known in sorted(forms.items())
        if len(known) > 1
    ]


def derived(entries: Sequence[Entry]) -> list[str]:
    """Of derived tables: what differs between recordings, by another version of klogger or of a
    schema of one's own; and how many recordings with the schema do not have one.
    """
    forms: Forms = defaultdict(Counter)
    versions: dict[str, set[str]] = defaultdict(set)
    lacking: dict[str, int] = {}
    for entry in entries:
        for name, version in entry.said["derived"].items():
            part = entry.tables[name]
            forms[part.schema, name][part.form] += 1
            versions[name].add(version)
    for (schema, name), known in sorted(forms.items()):
        total = sum(schema in entry.said["schemata"] for entry in entries)
        if (missing := total - known.total()) > 0:
            lacking[name] = missing
    found = unlike(forms)
    if lacking:
        found.append(
            f"{listed(lacking)}: up to {max(lacking.values())} recordings with their events do not"
            " have them: of another version of klogger; remove them, and add them again"
        )
    several = [name for name, known in sorted(versions.items()) if len(known) > 1]
    if several:
        found.append(f"{listed(several)}: made by several versions of their SQL")
    return found


def listed(names: Iterable[str]) -> str:
    first = [*names]
    more = f" and {len(first) - NAMES_MAX} more tables" if len(first) > NAMES_MAX else ""
    return ", ".join(first[:NAMES_MAX]) + more


def differing(forms: Mapping[Form, int]) -> str:
    """`pid is INTEGER in 3 recordings and BIGINT in 1; prio is missing in 2`"""
    total = sum(forms.values())
    types: dict[str, dict[str, int]] = defaultdict(dict)
    for form, count in forms.items():
        for name, kind in form:
            types[name][kind] = types[name].get(kind, 0) + count
    found = []
    for name, kinds in types.items():
        if len(kinds) > 1:
            listed = " and ".join(f"{kind} in {n}" for kind, n in kinds.items())
            found.append(f"{name} is {listed} recordings")
        if (missing := total - sum(kinds.values())) > 0:
            found.append(f"{name} is missing in {missing} of {total} recordings")
    return "; ".join(found) or "its columns stand in another order"


def clocks(entries: Iterable[Entry]) -> list[str]:
    found = []
    for entry in entries:
        start = entry.said["from_wall_ns"]
        if start is None:
            found.append(f"{entry.log} ({entry.host}): does not say when it began: no wall_ns")
        elif not CLOCK_FROM < start < CLOCK_TO:
            found.append(
                f"{entry.log} ({entry.host}): its clock was not set: it says {moment(start)}"
            )
    return found


def moment(ns: int) -> str:
    """A time of the clock on the wall, also one that no calendar has."""
    try:
        return f"{datetime.datetime.fromtimestamp(ns // 10**9, datetime.UTC):%Y-%m-%d %H:%M:%S}"
    except (OverflowError, ValueError, OSError):
        return f"{ns} ns"
