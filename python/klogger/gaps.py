# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Where events are missing from a log, and the SQL functions that heed it: `recording`, `gap`,
`thread_gap`; `missing`, `broken`, `pairs`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import duckdb

from klogger.folder import Folder
from klogger.made import Made
from klogger.opening import Opening
from klogger.prelude import numbers
from klogger.sqltext import identifier

# What LOST records place.
PLACED = "('ring_full', 'in_flight')"
# Losses that no LOST record places: no event of that CPU came after them.
UNPLACED = f"""
SELECT NULL::SMALLINT AS cpu, NULL::VARCHAR AS event, r.to_ns AS from_ns, r.to_ns,
       n.lost - n.placed AS count,
  'ring_full' AS key
FROM klogger.recording AS r, (
  SELECT
    coalesce((SELECT sum(count) FROM klogger.ledger WHERE key IN {PLACED} AND tid IS NULL),
             0)::BIGINT AS lost,
    coalesce((SELECT sum(try_cast(count AS BIGINT)) FROM main.LOST WHERE cpu IS NOT NULL),
             0)::BIGINT AS placed
) AS n
WHERE n.lost > n.placed"""
# What the ledger says of threads of programs. The kernel's events are not touched by it.
OF_PROGRAMS = "(tid IS NOT NULL OR starts_with(key, 'user_'))"
THREAD_GAP = f"""
SELECT tid, tgid, event, from_ns, coalesce(to_ns, (SELECT to_ns FROM klogger.recording)) AS to_ns,
       count, key
FROM klogger.ledger
WHERE from_ns IS NOT NULL AND key <> 'ring_full' AND severity IN ('loss', 'error')
  AND {OF_PROGRAMS}"""
THREAD_UNPLACED = """
SELECT n.tid, n.tgid, NULL::VARCHAR AS event, r.to_ns AS from_ns, r.to_ns,
       n.lost - coalesce(p.placed, 0) AS count,
  'ring_full' AS key
FROM klogger.recording AS r, (
  SELECT tid, tgid, sum(count)::BIGINT AS lost FROM klogger.ledger
  WHERE key = 'ring_full' AND tid IS NOT NULL
  GROUP BY tid, tgid
) AS n LEFT JOIN (
  SELECT tid, tgid, sum(try_cast(count AS BIGINT))::BIGINT AS placed FROM main.LOST
  WHERE tid IS NOT NULL
  GROUP BY tid, tgid
) AS p ON n.tid = p.tid AND n.tgid = p.tgid
WHERE n.lost > coalesce(p.placed, 0)"""

PAIRS = """
-- missing: until when events of these names, or of any, are missing, of all gaps that begin no
-- later. One row for each gap and `place`: a CPU; -1: for gaps on all CPUs; -2: for any gap. The
-- events at both ends of a gap are there: what ends at its beginning, or begins at its end, is not
-- touched. (A LOST record has the time of the event that it stands before.) There may be events
-- within it: a rate limit leaves some. That the kernel skipped hits of a probe has no place in
-- time, and makes no gap here; the ledger's warning says it of the whole answer.
CREATE MACRO klogger.missing(events) AS TABLE
  WITH gap AS (
    SELECT cpu::INTEGER AS cpu, least(from_ns, to_ns - 1) AS from_ns, to_ns FROM klogger.gap
    WHERE (event IS NULL OR list_contains(events, upper(event))) AND
          key NOT IN ('probe_missed', 'sample_missed')
  ), placed AS (
    SELECT -2 AS place, from_ns, to_ns FROM gap
    UNION ALL SELECT coalesce(cpu, -1), from_ns, to_ns FROM gap
  )
  SELECT place, from_ns, max(to_ns) OVER (PARTITION BY place ORDER BY from_ns) AS until FROM placed;

-- pairs: what begins with an event of one table or view, and ends with one of another. Both have
-- the columns
--   key     pairs are looked for among events of the same key, each of which does one thing at a
--           time
--   who     must be the same for both: the end of something else is not this one's
--   time
--   begun   of the beginnings: what is to be kept of it, mostly a struct; `ended`: the same of the
--           ends
-- An end belongs to the event right before it among those of its key, if that is a beginning of the
-- same `who`. Of events at one time, ends come first. The answer has one row for each pair, and for
-- each event without a partner:
--   key, who, begun, ended
--   from_ns, to_ns   NULL if it has no beginning, or no end
--   outside          its partner may be outside of the log: there is no event before the end, or
--                    after the beginning
CREATE MACRO klogger.pairs(of_begins, of_ends) AS TABLE
  WITH edge AS (
    SELECT key, who, time, true AS begins, begun, NULL AS ended FROM query_table(of_begins)
    UNION ALL
    SELECT key, who, time, false, NULL, ended FROM query_table(of_ends)
  ), step AS MATERIALIZED (
    SELECT *, lag(begins) OVER w AS begins_before, lag(who) OVER w AS who_before,
           lag(time) OVER w AS time_before, lag(begun) OVER w AS begun_before,
           lead(begins) OVER w AS begins_next, lead(who) OVER w AS who_next
    FROM edge WINDOW w AS (PARTITION BY key ORDER BY time, begins)
  )
  SELECT key, who, begun_before AS begun, ended, time_before AS from_ns, time AS to_ns,
         false AS outside
  FROM step WHERE NOT begins AND begins_before AND who IS NOT DISTINCT FROM who_before
  UNION ALL
  SELECT key, who, NULL, ended, NULL, time, begins_before IS NULL
  FROM step WHERE NOT begins AND (begins_before IS NOT true OR who IS DISTINCT FROM who_before)
  UNION ALL
  SELECT key, who, begun, NULL, time, NULL, begins_next IS NULL
  FROM step WHERE begins AND (begins_next IS NOT false OR who IS DISTINCT FROM who_next);
"""

BROKEN = """
-- broken: the rows of a table or view with the columns place (a CPU, or NULL: any), from_ns and
-- to_ns (NULL: since ever, for ever); and the column `broken`: events of these names are missing in
-- between. Most logs have no gap: they are spared the joins by time, and need not keep the rows for
-- them (WHOLE).
CREATE OR REPLACE MACRO klogger.broken(spans, events) AS TABLE
  WITH span AS MATERIALIZED (
    FROM query_table(spans)
  ), gap AS MATERIALIZED (
    FROM klogger.missing(events)
  )
  SELECT *, false AS broken FROM span WHERE (SELECT count(*) FROM gap) = 0
  UNION ALL
  SELECT s.*,
         greatest(coalesce(g.until, -1), coalesce(a.until, -1)) > coalesce(s.from_ns, -1) AS broken
  FROM (FROM span WHERE (SELECT count(*) FROM gap) > 0) AS s
  ASOF LEFT JOIN gap AS g
  ON coalesce(s.place::INTEGER, -2) = g.place AND coalesce(s.to_ns, 9223372036854775807) > g.from_ns
  ASOF LEFT JOIN (FROM gap WHERE place = -1) AS a
  ON coalesce(s.to_ns, 9223372036854775807) > a.from_ns;
"""
# Of a log without gaps.
WHOLE = """
CREATE OR REPLACE MACRO klogger.broken(spans, events) AS TABLE
  SELECT *, false AS broken FROM query_table(spans)
"""

OF_GAPS = "event VARCHAR, from_ns BIGINT, to_ns BIGINT, count BIGINT, key VARCHAR"
NO_GAPS = {
    "gap": f"CREATE OR REPLACE TABLE klogger.gap (cpu SMALLINT, {OF_GAPS})",
    "thread_gap": "CREATE OR REPLACE TABLE klogger.thread_gap"
    f" (tid INTEGER, tgid INTEGER, {OF_GAPS})",
}
DUMPS = ("DUMP_BEGIN", "DUMP_FINISH")


def hold_to_start(made: Made, events: Iterable[str]) -> None:
    """No event is older than the log: one whose clock was behind, of which the ledger says so, is
    moved to its start, so that no time is negative.
    """
    query = "SELECT DISTINCT event FROM klogger.ledger WHERE key = 'before_start'"
    connection = made.connection
    early = {event for (event,) in connection.execute(query).fetchall()}
    for event in early.intersection(events):
        found = connection.execute(
            "SELECT sql FROM duckdb_views() WHERE schema_name = 'main' AND view_name = $1", [event]
        ).fetchone()
        # What is a table is empty.
        if found is not None:
            query = found[0].partition(" AS ")[2].rstrip(";")
            query = query.replace("*", "* REPLACE (greatest(time, 0) AS time)", 1)
            made.view(f'main."{event}"', query)


def create(
    made: Made, events: Mapping[str, Any], preamble: Mapping[str, Any], folder: Folder
) -> None:
    """Tables that stand on event tables, and the functions that need them."""
    nothing = folder.is_empty("ledger") and ("LOST" not in events or folder.is_empty("LOST"))
    if not folder.is_empty("ledger"):
        hold_to_start(made, [e.name for e in events.values()])
    fill_recording(made, events, preamble, folder.opening())
    if nothing:
        for name in ("gap", "thread_gap"):
            made.define(f"klogger.{name}", NO_GAPS[name])
    else:
        fill_gaps(made, events, preamble)
    made.define("pairs", PAIRS)
    made.define("broken", WHOLE if nothing or not has_gaps(made.connection) else BROKEN)


def fill_recording(
    made: Made, events: Mapping[str, Any], preamble: Mapping[str, Any], kept: Opening | None
) -> None:
    recorder = preamble.get("recorder")
    overwrite = bool(recorder.get("overwrite")) if isinstance(recorder, dict) else False
    cpus = numbers(preamble, "host", "cpus")
    if kept is not None:
        made.table(
            "klogger.recording",
            "SELECT 0::BIGINT AS from_ns, $1::BIGINT AS to_ns, $2::BOOLEAN AS finished,"
            " $3::BOOLEAN AS overwrite, $4::INTEGER[] AS cpus",
            [kept.to_ns, kept.finished, overwrite, cpus], same=True,
        )  # fmt: skip
        return
    finish = (
        "SELECT max(time) FROM main.KLOGGER_FINISH" if "KLOGGER_FINISH" in events else "SELECT NULL"
    )
    # Up to the last event, which may be later than the word of the recorder that it has finished.
    # The recorder still empties the rings when the recording has ended.
    last = ["SELECT 0 AS t", f"SELECT max(to_ns) FROM klogger.ledger WHERE ({finish}) IS NULL"]
    last += [
        f"SELECT max(time) FROM main.{identifier(e.name)}"
        for e in events.values()
        if e.name not in DUMPS
    ]
    made.table(
        "klogger.recording",
        "SELECT 0::BIGINT AS from_ns, max(t)::BIGINT AS to_ns,"
        f" ({finish}) IS NOT NULL AS finished, {overwrite} AS overwrite, $1::INTEGER[] AS cpus"
        f" FROM ({' UNION ALL '.join(last)})",
        [cpus],
    )


def fill_gaps(made: Made, events: Mapping[str, Any], preamble: Mapping[str, Any]) -> None:
    gaps = [
        "SELECT cpu, event, from_ns,"
        " coalesce(to_ns, (SELECT to_ns FROM klogger.recording)) AS to_ns, count, key"
        f" FROM klogger.ledger WHERE from_ns IS NOT NULL AND key NOT IN {PLACED}"
        f" AND NOT {OF_PROGRAMS} AND (severity IN ('loss', 'error')"
        " OR key IN ('overwritten', 'events_disabled', 'rate_limited'))"
    ]
    thread_gaps = [THREAD_GAP]
    if "LOST" in events:
        clock = preamble.get("clock")
        start = clock.get("start_ns", 0) if isinstance(clock, dict) else 0
        start = start if isinstance(start, int) else 0
        gaps += [lost(start, "cpu", "cpu IS NOT NULL"), UNPLACED]
        if has_threads(made.connection):
            thread_gaps += [lost(start, "tid, tgid", "tid IS NOT NULL"), THREAD_UNPLACED]
    made.table("klogger.gap", " UNION ALL BY NAME ".join(gaps))
    made.table("klogger.thread_gap", " UNION ALL BY NAME ".join(thread_gaps))


def has_gaps(connection: duckdb.DuckDBPyConnection) -> bool:
    return bool(connection.execute("SELECT count(*) FROM klogger.gap").fetchall()[0][0])


def has_threads(connection: duckdb.DuckDBPyConnection) -> bool:
    """Whether programs may have logged events: then LOST says which thread."""
    columns = connection.execute("SELECT column_name FROM (DESCRIBE main.LOST)").fetchall()
    return ("tid",) in columns


def lost(start_ns: int, place: str, where: str) -> str:
    """LOST records as gaps, with the columns `place`.

    `since` is a reading of the clock, not a time since the log's start as `time` is.
    """
    since = f"coalesce(try_cast(since AS BIGINT), 0) - {start_ns}"
    return (
        f"SELECT {place}, NULL::VARCHAR AS event,"
        f" CASE WHEN {since} BETWEEN 0 AND time THEN {since} ELSE time END AS from_ns,"
        " time AS to_ns,"
        f" try_cast(count AS BIGINT) AS count, 'ring_full' AS key FROM main.LOST WHERE {where}"
    )
