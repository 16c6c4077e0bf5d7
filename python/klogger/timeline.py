# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Who ran where, for the page's timeline: bins for the whole log, and the exact quanta where they
fit.

A page cannot hold the quanta of ten million events. It gets, for each bin of time, how much of it
each thread had on each CPU; the page makes coarser bins of these. Where a log has few quanta, or in
the windows that were chosen, it gets each quantum, with the wake-up before it. Everything that
reads the whole log is SQL, so memory does not grow with it.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt

from klogger.executor import Session
from klogger.log import Event, Log
from klogger.sqltext import identifier
from klogger.units import printable

Numbers = npt.NDArray[np.int64]

# Schema and name of the analysis whose picture it is, and whose tables it reads.
ANALYSIS = ("scheduler", "timeline")
# What the page has room for: about 8 bytes for each quantum, 4 for each part of a bin.
QUANTA_MAX = 240_000
PARTS_MAX = 200_000
BINS_MAX = 1 << 16
BINS_MIN = 256
# Threads that have a name and a row; all others are drawn as one.
THREADS_MAX = 200
GAPS_MAX = 400
# In which the busiest part of a log is looked for.
SLICES = 4096
SHARE_MAX = 65535

# Their names and numbers. 0 is all others.
THREADS = f"""
CREATE OR REPLACE TEMP TABLE track_thread AS
SELECT pid, program, ns, quanta,
       CASE WHEN rank <= {THREADS_MAX} THEN rank ELSE 0 END::USMALLINT AS id FROM (
    SELECT *, row_number() OVER (ORDER BY ns DESC, pid) AS rank FROM (
        SELECT pid, arg_max(program, to_ns) AS program, sum(to_ns - from_ns)::BIGINT AS ns,
               count(*) AS quanta
        FROM quantum GROUP BY pid))"""

# Most quanta lie in one bin; only the others have to be cut.
BINS = """
CREATE OR REPLACE TEMP TABLE track_bin AS
SELECT bin, cpu, id, sum(part.ns)::BIGINT AS ns FROM (
    SELECT from_ns // {width} AS bin, cpu, pid, sum(to_ns - from_ns) AS ns
    FROM quantum WHERE from_ns // {width} = (to_ns - 1) // {width} GROUP BY ALL
    UNION ALL
    SELECT bin, cpu, pid, sum(least(to_ns, (bin + 1) * {width}) - greatest(from_ns, bin * {width}))
    FROM (
        SELECT cpu, pid, from_ns, to_ns,
               unnest(range(from_ns // {width}, (to_ns - 1) // {width} + 1)) AS bin
        FROM quantum WHERE from_ns // {width} < (to_ns - 1) // {width}
    ) GROUP BY ALL
) AS part JOIN track_thread USING (pid) GROUP BY bin, cpu, id"""
COARSER = """
CREATE OR REPLACE TEMP TABLE track_bin AS
SELECT bin // 2 AS bin, cpu, id, sum(ns)::BIGINT AS ns FROM track_bin GROUP BY ALL"""

# Why quanta ended, as the scheduler's analyses name it. 0 is the log's end, 1 that the thread could
# still run: the kernel's state is 0 then.
REASONS = """
CREATE OR REPLACE TEMP TABLE track_reason AS
SELECT words,
       CASE WHEN runs THEN 1 ELSE 1 + row_number() OVER (PARTITION BY runs ORDER BY words) END
         AS how
FROM (SELECT words, bool_or(state = 0) AS runs FROM switch_cause GROUP BY words)"""
QUANTA = """
SELECT from_ns, to_ns, cpu, pid, id, coalesce(how, 0) AS how,
       coalesce(lag(from_ns) OVER thread, -1) AS before_ns,
       coalesce(lag(state) OVER thread, 1) <> 0 AS slept
FROM quantum JOIN track_thread USING (pid) LEFT JOIN switch_cause USING (state)
LEFT JOIN track_reason USING (words) WHERE from_ns < {until} AND to_ns > {since}
WINDOW thread AS (PARTITION BY pid ORDER BY from_ns)"""
NOT_WOKEN = (
    f"SELECT from_ns, to_ns, cpu, id, how, 0 AS waited, -1 AS waker_cpu, 0 AS waker FROM ({QUANTA})"
)
# The wake-up before a quantum: the latest, if it is later than the quantum before, and if that
# ended with a sleep. `waking` is the table of the event with that role.
WOKEN = f"""
SELECT from_ns, to_ns, cpu, id, how, CASE WHEN fresh THEN from_ns - woken_ns ELSE 0 END AS waited,
       CASE WHEN fresh THEN waker_cpu ELSE -1 END AS waker_cpu,
       CASE WHEN fresh THEN waker ELSE 0 END AS waker
FROM (
    SELECT q.*, w.time AS woken_ns, w.cpu AS waker_cpu, coalesce(t.id, 0) AS waker,
           coalesce(q.slept AND w.time > q.before_ns, false) AS fresh
    FROM ({QUANTA}) AS q
    ASOF LEFT JOIN (SELECT time, cpu, pid, waker FROM {{waking}}
                    WHERE time BETWEEN {{since}} AND {{until}}) AS w
      ON q.pid = w.pid AND q.from_ns >= w.time
    LEFT JOIN track_thread AS t ON t.pid = w.waker
)"""


@dataclass(frozen=True)
class Window:
    """A part of the log whose quanta the page has."""

    name: str
    from_ns: int
    to_ns: int


@dataclass
class Timeline:
    """`bins` and `quanta` are columns of equal length: see `pack`."""

    end_ns: int
    cpus: list[int]
    threads: list[dict[str, Any]]
    total: int
    width_ns: int
    windows: list[Window]
    bins: dict[str, Numbers]
    quanta: dict[str, Numbers]
    gaps: list[list[int | None]] = field(default_factory=list)
    wakeups: bool = True
    log: str = ""
    reasons: list[str] = field(default_factory=list)


def read(session: Session, at: Iterable[int] = ()) -> Timeline | None:
    """The timeline of a log that has quanta. `at`: times, in ns, around which each quantum is
    wanted.
    """
    cursor = quantum_cursor(session)
    if cursor is None:
        return None
    total, end = one_row(
        cursor,
        "SELECT count(*), greatest(max(to_ns), (SELECT to_ns FROM klogger.recording)) FROM quantum",
    )
    if not total:
        return None
    cursor.execute(THREADS)
    cursor.execute(REASONS)
    cpus = [
        int(c)
        for (c,) in cursor.execute("SELECT DISTINCT cpu FROM quantum ORDER BY cpu").fetchall()
    ]
    width, bins = binned(cursor, int(end), cpus)
    windows = choose_windows(cursor, int(total), int(end), list(at))
    waking = waking_event(session.log)
    quanta = join([exact(cursor, w, cpus, waking) for w in windows])
    threads = named_threads(cursor)
    return Timeline(
        int(end), cpus, threads, int(total), width, windows, bins, quanta, gaps(session.log),
        waking is not None, session.log.path.name.removesuffix("-parquet"), reasons(cursor),
    )  # fmt: skip


def quantum_cursor(session: Session) -> duckdb.DuckDBPyConnection | None:
    """A connection with the table `quantum`, which the scheduler's analyses share."""
    one = session.find(*ANALYSIS)
    if one is None or any(e.upper() not in session.log.events for e in one.events):
        return None
    return session.prepared(one)


def waking_event(log: Log) -> Event | None:
    """The event that says who woke whom: of the role `waking`, with a `waker`."""
    for event in log.with_role("waking"):
        if any(f.name == "waker" for f in event.fields):
            return event
    return None


def reasons(cursor: duckdb.DuckDBPyConnection) -> list[str]:
    """By the numbers in the column `how`. The first is empty: the log ended before the quantum."""
    rows = cursor.execute("SELECT how, words FROM track_reason").fetchall()
    words = {int(how): str(text) for how, text in rows}
    return [words.get(how, "") for how in range(max(words, default=0) + 1)]


def one_row(cursor: duckdb.DuckDBPyConnection, query: str) -> tuple[Any, ...]:
    row = cursor.execute(query).fetchone()
    assert row is not None
    return tuple(row)


def binned(
    cursor: duckdb.DuckDBPyConnection, end: int, cpus: list[int]
) -> tuple[int, dict[str, Numbers]]:
    """The width of the bins in ns, and what is in them: as many as there is room for."""
    count = max(BINS_MAX // len(cpus), BINS_MIN)
    width = end // count + 1
    cursor.execute(BINS.format(width=width))
    while (
        one_row(cursor, "SELECT count(*), max(bin) FROM track_bin") > (PARTS_MAX, 0)
        and width * BINS_MIN < end
    ):
        cursor.execute(COARSER)
        width *= 2
    found = cursor.execute(
        "SELECT bin, cpu, id, ns FROM track_bin ORDER BY bin, cpu, id"
    ).fetchnumpy()
    columns = {name: whole(found[name]) for name in ("bin", "cpu", "id")}
    columns["cpu"] = np.searchsorted(np.array(cpus), columns["cpu"])
    columns["share"] = np.rint(whole(found["ns"]) * (SHARE_MAX / width)).astype(np.int64)
    return width, columns


def choose_windows(
    cursor: duckdb.DuckDBPyConnection, total: int, end: int, at: list[int]
) -> list[Window]:
    """All of a small log; of a big one what was asked for, else its beginning and its
    busiest part.
    """
    if total <= QUANTA_MAX:
        return [Window("all", 0, end)]
    width = end // SLICES + 1
    rows = cursor.execute(f"SELECT from_ns // {width}, count(*) FROM quantum GROUP BY 1").fetchall()
    counts = np.zeros(SLICES + 1, dtype=np.int64)
    for number, count in rows:
        counts[min(int(number), SLICES)] += count
    wanted = [
        (f"around {time / 1e9:.6g} s", min(time // width, SLICES))
        for time in at
        if 0 <= time <= end
    ]
    wanted = wanted or [("the beginning", 0), ("the busiest part", int(np.argmax(counts)))]
    room = QUANTA_MAX // len(wanted)
    found: list[Window] = []
    for name, middle in wanted:
        low, high = grow(counts, int(middle), room)
        exact_middle = counts[middle] > room
        window = Window(name, low * width, min(high * width, end))
        if exact_middle:
            # Even one slice has too many.
            window = Window(
                name, window.from_ns, window.from_ns + max(1, int(width * room / counts[middle]))
            )
        if not any(window.from_ns < w.to_ns and w.from_ns < window.to_ns for w in found):
            found.append(window)
    return sorted(found, key=lambda w: w.from_ns)


def grow(counts: Numbers, middle: int, room: int) -> tuple[int, int]:
    """The slices around `middle`, at least that one, which together have at most `room` quanta."""
    low, high, used = middle, middle + 1, int(counts[middle])
    while True:
        left = int(counts[low - 1]) if low > 0 else None
        right = int(counts[high]) if high < len(counts) else None
        if (
            left is not None
            and used + left <= room
            and (right is None or middle - low <= high - middle)
        ):
            low, used = low - 1, used + left
        elif right is not None and used + right <= room:
            high, used = high + 1, used + right
        elif left is not None and used + left <= room:
            low, used = low - 1, used + left
        else:
            return low, high


def exact(
    cursor: duckdb.DuckDBPyConnection, window: Window, cpus: list[int], waking: Event | None
) -> dict[str, Numbers]:
    """The quanta of a window, by their beginning."""
    times = {"since": window.from_ns, "until": window.to_ns}
    query = NOT_WOKEN.format(**times)
    if waking is not None:
        query = WOKEN.format(**times, waking=f"main.{identifier(waking.name)}")
    found = cursor.execute(f"{query} ORDER BY from_ns, cpu").fetchnumpy()
    start, end = whole(found["from_ns"]), whole(found["to_ns"])
    places_of = np.array(cpus)
    waker_cpu = whole(found["waker_cpu"])
    known = np.isin(waker_cpu, places_of)
    return {
        "start": start,
        "length": end - start,
        "cpu": np.searchsorted(places_of, whole(found["cpu"])),
        "id": whole(found["id"]),
        "how": whole(found["how"]),
        "waited": np.where(known, whole(found["waited"]), 0),
        # 0: not known
        "waker_cpu": np.where(known, np.searchsorted(places_of, waker_cpu) + 1, 0),
        "waker": np.where(known, whole(found["waker"]), 0),
    }


def join(parts: list[dict[str, Numbers]]) -> dict[str, Numbers]:
    """One after another; a quantum that is in two windows only once."""
    joined = {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}
    same = [joined[name] for name in ("start", "cpu", "length", "id")]
    _, places = np.unique(np.stack(same), axis=1, return_index=True)
    return {name: column[places] for name, column in joined.items()}


def whole(column: Any) -> Numbers:
    return np.asarray(np.ma.filled(column, 0)).astype(np.int64)


def named_threads(cursor: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    """In the order of their numbers; the first is all that have none of their own."""
    rest, ns, quanta = one_row(
        cursor,
        "SELECT count(*), coalesce(sum(ns), 0), coalesce(sum(quanta), 0) FROM track_thread"
        " WHERE id = 0",
    )
    others = {
        "name": f"{rest:,} other threads",
        "program": "other",
        "pid": -1,
        "ns": int(ns),
        "quanta": int(quanta),
    }
    query = "SELECT pid, program, ns, quanta FROM track_thread WHERE id > 0 ORDER BY id"
    return [others] + [
        {
            "name": printable(f"{program}[{pid}]"),
            "program": printable(program),
            "pid": pid,
            "ns": ns,
            "quanta": quanta,
        }
        for pid, program, ns, quanta in cursor.execute(query).fetchall()
    ]


def gaps(log: Log) -> list[list[int | None]]:
    """CPU (None: all), from, to: where switches are missing."""
    switches = [e.name for role in ("switch_in", "switch_out") for e in log.with_role(role)]
    rows = log.connection.cursor().execute(
        "SELECT cpu, from_ns, to_ns FROM klogger.gap WHERE event IS NULL"
        " OR list_contains($1, event)"
        f" ORDER BY to_ns - from_ns DESC, from_ns LIMIT {GAPS_MAX}",
        [switches],
    )
    return [list(row) for row in rows.fetchall()]


def as_json(timeline: Timeline, colours: dict[str, str], other: str) -> dict[str, Any]:
    """For the page. `colours` by program."""
    return {
        "log": printable(timeline.log), "end": timeline.end_ns, "cpus": timeline.cpus,
        "total": timeline.total,
        "threads": [{**t, "colour": colours.get(t["program"], other)} for t in timeline.threads],
        "width": timeline.width_ns, "wakeups": timeline.wakeups, "gaps": timeline.gaps,
        "shareMax": SHARE_MAX, "reasons": [printable(words) for words in timeline.reasons],
        "windows": [{"name": w.name, "from": w.from_ns, "to": w.to_ns} for w in timeline.windows],
        "bins": pack(timeline.bins, "bin"), "quanta": pack(timeline.quanta, "start"),
    }  # fmt: skip


def pack(columns: dict[str, Numbers], ascending: str) -> dict[str, Any]:
    """Columns of numbers that are not negative, as text. page/timeline.js unpacks them.

    Each is stored by bytes: the lowest of all numbers, then the next, and so on, as many as the
    greatest needs. So the high ones, nearly all 0, compress to nothing. Of the column `ascending`
    the differences are stored.
    """
    layout, planes = [], []
    for name, numbers in columns.items():
        values = np.diff(numbers, prepend=0) if name == ascending else numbers
        depth = max(1, (int(values.max(initial=0)).bit_length() + 7) // 8)
        layout.append({"name": name, "depth": depth, "ascending": name == ascending})
        bytes_of = np.ascontiguousarray(values, dtype="<i8").view(np.uint8).reshape(-1, 8)
        planes.append(np.ascontiguousarray(bytes_of[:, :depth].T).tobytes())
    compressor = zlib.compressobj(6, wbits=31)
    data = compressor.compress(b"".join(planes)) + compressor.flush()
    rows = len(next(iter(columns.values())))
    return {"rows": rows, "layout": layout, "data": base64.b64encode(data).decode()}
