# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The waterfall of one operation: what its time went to, layer by layer, and who ran meanwhile.

What is drawn is a list of lines, each with its bars; the terminal has them as text
(`waterfall_text`), the page and PNGs as a picture of the kind `timeline`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from klogger.analysis import Analysis, Column, Picture
from klogger.executor import Result, Rows
from klogger.failure import Failure
from klogger.log import Log
from klogger.spans import LAYERS, fill_for
from klogger.units import printable, show

SCHEMA = "operations"
SLOWEST = "slowest"
# On a page.
SLOWEST_DRAWN = 3
# Lines of a layer; what is shorter has one line for all.
LINES_MAX = 8
# Threads whose time on CPUs is drawn, beside that of the operation and of its helpers.
OTHERS_MAX = 3
SPANS_MAX = 20_000
# So many of the shortest bars would fill a line of a picture.
BARS_MOST = 250
RUNNING = "running"
WHAT_TO_RECORD = (
    "record with -s operations, and with block, ext4, xfs, writeback, scheduler for what their "
    "time went to"
)


@dataclass(frozen=True)
class Line:
    """Bars of one row, in ns since the operation began. `waits`: the thread did not go on
    meanwhile. `open`: it had not ended with the log.
    """

    layer: str
    what: str
    bars: tuple[tuple[int, int], ...]
    waits: bool = True
    open: bool = False

    @property
    def ns(self) -> int:
        return covered(self.bars)


@dataclass
class Waterfall:
    """`unexplained`: ns in no span of the thread but its system call. `causes`: ns by layer, each
    moment in the first layer that its thread waited in, as the analysis `stalls` has them.
    """

    id: int
    pid: int
    program: str
    what: str
    path: str
    system: str
    result: int | None
    from_ns: int
    took: int
    returned: bool
    lines: list[Line] = field(default_factory=list)
    unexplained: int = 0
    causes: dict[str, int] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        lines = [
            {**dataclasses.asdict(line), "bars": [list(bar) for bar in line.bars]}
            for line in self.lines
        ]
        return {**dataclasses.asdict(self), "lines": lines}


def covered(bars: Iterable[tuple[int, int]]) -> int:
    """The length of all of these together, where they overlap only once."""
    total = last = 0
    for begin, end in sorted(bars):
        total += max(end - max(begin, last), 0)
        last = max(last, end)
    return total


def numbers_of(log: Log, words: Iterable[str]) -> list[int]:
    """The operations that are asked for: numbers, or `slowest`."""
    prepare(log)
    found: list[int] = []
    for word in (part.strip() for given in words for part in given.split(",")):
        if word == SLOWEST:
            found += slowest(log, 1)
        elif word.isdecimal() and len(word) < 16:
            found.append(int(word))
        else:
            raise Failure(
                f"'{printable(word)}' is no operation",
                help=f"give its number, or '{SLOWEST}'; the analysis slow_operations lists them",
            )
    return list(dict.fromkeys(found))


def prepare(log: Log) -> list[str]:
    """Fills the tables; gives the warnings. A log without operations is refused."""
    if not any(schema.get("name") == SCHEMA for schema in log.schemas):
        raise Failure("the log has no operations on files", help=WHAT_TO_RECORD)
    return fill_for(log, "span, cpu_span")


def slowest(log: Log, count: int) -> list[int]:
    """Those that have returned come first."""
    query = (
        "SELECT id FROM klogger.made_operation"
        f" ORDER BY to_ns IS NULL, to_ns - from_ns DESC, id LIMIT {count:d}"
    )
    return [int(number) for (number,) in log.rows(query)]


OPERATION = """
SELECT o.pid, klogger.comm(o.pid, o.from_ns), o.what, coalesce(f.path, ''),
       CASE WHEN o.device IS NULL THEN '' ELSE klogger.device(o.device) END, o.result, o.from_ns,
       o.to_ns, (SELECT to_ns FROM klogger.recording), o.device, o.disk
FROM klogger.operation AS o
LEFT JOIN klogger.made_file AS f ON f.device = o.device AND f.inode = o.inode
WHERE o.id = {id:d}"""
# Of the thread itself, of the device as a whole, and of those who worked for it.
SPANS = f"""
WITH near AS (
  SELECT * REPLACE (klogger.span_text(what, bytes, sector) AS what),
         coalesce(to_ns, {{to:d}}) AS until
  FROM klogger.made_span
  WHERE from_ns < {{to:d}} AND coalesce(to_ns, {{to:d}}) > {{since:d}}
), own AS (FROM near WHERE pid = {{pid:d}})
SELECT layer, what, from_ns, until, to_ns IS NULL, coalesce(waits, false),
       CASE WHEN helper IS NULL THEN NULL ELSE klogger.comm(helper, from_ns) END
FROM own
UNION ALL
SELECT layer, what, from_ns, until, to_ns IS NULL, false,
       CASE WHEN pid IS NULL THEN NULL ELSE klogger.comm(pid, from_ns) END
FROM near
WHERE pid IS NULL AND device IN ({{devices}})
   OR pid <> {{pid:d}} AND pid IN (SELECT helper FROM own)
ORDER BY 3, 4, 1, 2 LIMIT {SPANS_MAX}"""
CPUS = """
SELECT pid, program, cpu, greatest(from_ns, {since:d}), least(to_ns, {to:d})
FROM klogger.cpu_span WHERE from_ns < {to:d} AND to_ns > {since:d} ORDER BY from_ns, cpu"""
HELPERS = """
SELECT DISTINCT helper FROM klogger.made_span
WHERE pid = {pid:d} AND from_ns < {to:d} AND coalesce(to_ns, {to:d}) > {since:d}
  AND helper IS NOT NULL"""


def read(log: Log, number: int) -> Waterfall:
    prepare(log)
    rows = log.rows(OPERATION.format(id=number))
    if not rows:
        ((count,),) = log.rows("SELECT count(*) FROM klogger.made_operation")
        help = f"there are {count:,}, from 1 on" if count else "the log has none"
        raise Failure(f"there is no operation {number}", help=help)
    pid, program, what, path, system, result, since, to, end, *devices = rows[0]
    until = max(end if to is None else to, since + 1)
    found = Waterfall(
        number, pid, printable(program), printable(what), printable(path), system, result, since,
        until - since, to is not None,
    )  # fmt: skip
    whole = Line("system call", found.what, ((0, found.took),), open=not found.returned)
    where = {"pid": pid, "since": since, "to": until}
    known = ", ".join(str(int(device)) for device in devices if device is not None) or "NULL"
    spans = [
        Line(
            layer,
            printable(words) + (f" ({printable(helper)})" if helper else ""),
            ((max(begin - since, 0), min(finish - since, found.took)),),
            waits,
            still,
        )
        for layer, words, begin, finish, still, waits, helper in log.rows(
            SPANS.format(**where, devices=known)
        )
    ]  # fmt: skip
    own = [bar for line in spans if line.waits or line.layer in LAYERS[-2:] for bar in line.bars]
    found.unexplained = found.took - covered(own)
    ran = running(log, where)
    found.lines = [whole, *in_layers(spans), *ran]
    found.causes = causes(found.took, spans, ran)
    return found


def causes(took: int, spans: list[Line], ran: list[Line]) -> dict[str, int]:
    """Each layer has what those before it leave; the rest is time on the CPU, or off it."""
    found: dict[str, int] = {}
    bars: list[tuple[int, int]] = []
    before = 0
    for layer in [*LAYERS[1:], RUNNING]:
        # Of threads on CPUs, the first is the operation's own.
        lines = spans if layer != RUNNING else ran[:1]
        bars += [
            bar
            for line in lines
            if line.layer == layer and (line.waits or layer in LAYERS[-2:])
            for bar in line.bars
        ]
        so_far = covered(bars)
        found[layer] = so_far - before
        before = so_far
    found["not running" if ran else "unexplained"] = took - before
    return {layer: ns for layer, ns in found.items() if ns}


def in_layers(spans: list[Line]) -> list[Line]:
    """In the order of layers and times; the shorter ones of a layer with many have one line."""
    found = []
    for layer in LAYERS:
        of_layer = [line for line in spans if line.layer == layer]
        if len(of_layer) > LINES_MAX:
            longest = sorted(of_layer, key=lambda line: -line.ns)
            kept = set(map(id, longest[: LINES_MAX - 1]))
            rest = [line for line in of_layer if id(line) not in kept]
            bars = tuple(bar for line in rest for bar in line.bars)
            more = Line(
                layer, f"{len(rest):,} shorter ones", bars, all(line.waits for line in rest)
            )
            of_layer = [*(line for line in of_layer if id(line) in kept), more]
        found += of_layer
    return found


def running(log: Log, where: dict[str, int]) -> list[Line]:
    """On which CPU the thread, its helpers, and the busiest others were."""
    first = [where["pid"], *(pid for (pid,) in log.rows(HELPERS.format(**where)))]
    bars: dict[int, list[tuple[int, int]]] = {}
    names: dict[int, str] = {}
    since = where["since"]
    for pid, program, cpu, begin, end in log.rows(CPUS.format(**where)):
        bars.setdefault(pid, []).append((begin - since, end - since))
        cpus = names.get(pid, f"{program}[{pid}] on CPU")
        names[pid] = cpus if f" {cpu}," in f"{cpus}," else f"{cpus} {cpu}"
    others = sorted(set(bars) - set(first), key=lambda pid: -covered(bars[pid]))[:OTHERS_MAX]
    return [
        Line(RUNNING, printable(names[pid]), tuple(bars[pid]), pid == where["pid"])
        for pid in [*first, *others]
        if pid in bars
    ]


COLUMNS = {
    "row": Column("row", "", False, ""),
    "layer": Column("layer", "", False, "layer"),
    "from_ns": Column("from_ns", "ns", False, "since the operation began"),
    "to_ns": Column("to_ns", "ns", False, "until then"),
    "took": Column("took", "ns", False, "how long"),
    "drawn_ns": Column("drawn_ns", "ns", False, "where its bar ends, which is never too short"),
    "waits": Column("waits", "", False, "whether the thread waited for it"),
}


def as_result(found: Waterfall) -> Result:
    """As an answer that has a picture, and a table of its bars."""
    analysis = Analysis(
        f"operation_{found.id}", Path(), SCHEMA, title=f"Operation {found.id}",
        question=title_of(found), columns=COLUMNS,
        picture=Picture(
            "timeline",
            {"x": "from_ns", "x2": "drawn_ns", "row": "row", "colour": "layer", "rows": "low"},
        ),
        notes=[f"{show(found.unexplained, 'ns')} are in no span of its thread."],
    )  # fmt: skip
    bars = [(line, begin, end) for line in found.lines for begin, end in line.bars]
    rows: list[list[Any]] = [
        [f"{line.layer}: {line.what}", line.layer, begin, end, end - begin,
         "yes" if line.waits else "no"]
        for line, begin, end in bars
    ]  # fmt: skip
    names = ["row", "layer", "from_ns", "to_ns", "took", "waits"]
    least = -(-found.took // BARS_MOST)
    drawn = [max(end, min(begin + least, found.took)) for _, begin, end in bars]
    points = [[*row, end] for row, end in zip(rows, drawn, strict=True)]
    return Result(analysis, table=Rows(names, rows), points=Rows([*names, "drawn_ns"], points))


def title_of(found: Waterfall) -> str:
    """What it was, of whom, and where."""
    parts = [f"{found.what} of {found.program}[{found.pid}]"]
    if found.path and found.path not in found.what:
        parts.append(found.path)
    if found.system:
        parts.append(f"device {found.system}")
    took = show(found.took, "ns")
    parts.append(f"took {took}" if found.returned else f"had not returned after {took}")
    if found.result is not None:
        parts.append(f"result {found.result}")
    parts.append(f"began at {show(found.from_ns, 'ns')}")
    return ", ".join(parts)
