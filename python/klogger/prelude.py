# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The SQL functions that every log has. Those that depend on what is in it are in `helpers` and
`costs`.

DuckDB puts the arguments of a macro into its text. What they name must not be taken for a column of
the macro's own, nor for its tables: so each name inside of a subquery, and each parameter of a
lambda, begins with `klogger`, in a form that no event or field can have.
"""

NAMES = """
CREATE TABLE klogger.thread AS
  SELECT pid, max(tgid) AS tgid, arg_max(comm, from_ns) AS comm, count(*) AS names FROM klogger.process GROUP BY pid;
CREATE TABLE klogger.renamed AS
  SELECT pid, from_ns, comm FROM klogger.process WHERE pid IN (SELECT pid FROM klogger.thread WHERE names > 1);
CREATE MACRO klogger.comm(p, t) AS coalesce(
  (SELECT arg_max("klogger comm", "klogger from")
   FROM (SELECT pid AS "klogger pid", comm AS "klogger comm", from_ns AS "klogger from" FROM klogger.process)
     AS "klogger x"
   WHERE "klogger pid" = p AND "klogger from" <= t),
  (SELECT any_value("klogger comm")
   FROM (SELECT pid AS "klogger pid", comm AS "klogger comm", names AS "klogger n" FROM klogger.thread) AS "klogger x"
   WHERE "klogger pid" = p AND "klogger n" = 1), p::VARCHAR);
CREATE MACRO klogger.three_digits(x) AS
  CASE WHEN abs(x) >= 99.95 THEN format('{:.0f}', x) WHEN abs(x) >= 9.995 THEN format('{:.1f}', x)
       ELSE format('{:.2f}', x) END;
CREATE MACRO klogger.duration(ns) AS
  CASE WHEN abs(ns) < 999.5 THEN format('{:.0f} ns', ns::DOUBLE)
       WHEN abs(ns) < 999.5e3 THEN klogger.three_digits(ns / 1e3) || ' µs'
       WHEN abs(ns) < 999.5e6 THEN klogger.three_digits(ns / 1e6) || ' ms'
       ELSE klogger.three_digits(ns / 1e9) || ' s' END;
-- Small pictures of how long things take, one bar for each doubling: octaves(histogram(octave(ns))).
CREATE MACRO klogger.octave(ns) AS least(greatest(floor(log2(greatest(ns, 1) / 1000)), 0), 20)::INTEGER;
CREATE MACRO klogger.octaves(h) AS list_transform(range(21), lambda "klogger k": coalesce(h["klogger k"::INTEGER], 0));
CREATE MACRO klogger.label(name, p) AS coalesce(nullif(name, ''), 'thread ' || p);
-- The rows of a table or view, and the column `program`: the name that the thread `pid` had at `time`. Most threads
-- have one name, which is found by hashing; only the others need the costlier join by time.
CREATE MACRO klogger.with_program(source) AS TABLE
  SELECT s.*, klogger.label(t.comm, s.pid) AS program
  FROM query_table(source) AS s LEFT JOIN klogger.thread AS t ON s.pid = t.pid WHERE t.names IS NULL OR t.names = 1
  UNION ALL
  SELECT s.*, klogger.label(r.comm, s.pid) AS program
  FROM (SELECT * FROM query_table(source) SEMI JOIN klogger.renamed USING (pid)) AS s
  ASOF LEFT JOIN klogger.renamed AS r ON s.pid = r.pid AND s.time >= r.from_ns;
"""

# The recorder's own threads are not in the process table of a log of a workload, but may have run
# next.
RECORDER = """
INSERT INTO klogger.thread
SELECT pid, NULL, '(recorder)', 1 FROM klogger.recorder WHERE pid NOT IN (SELECT pid FROM klogger.thread)"""

PAIRS = """
-- missing: until when events of these names, or of any, are missing, of all gaps that begin no later. One row for
-- each gap and `place`: a CPU; -1: for gaps on all CPUs; -2: for any gap. The events at both ends of a gap are there:
-- what ends at its beginning, or begins at its end, is not touched. (A LOST record has the time of the event that it
-- stands before.) There may be events within it: a rate limit leaves some. That the kernel skipped hits of a probe
-- has no place in time, and makes no gap here; the ledger's warning says it of the whole answer.
CREATE MACRO klogger.missing(events) AS TABLE
  WITH gap AS (
    SELECT cpu::INTEGER AS cpu, least(from_ns, to_ns - 1) AS from_ns, to_ns FROM klogger.gap
    WHERE (event IS NULL OR list_contains(events, upper(event))) AND key <> 'probe_missed'
  ), placed AS (
    SELECT -2 AS place, from_ns, to_ns FROM gap UNION ALL SELECT coalesce(cpu, -1), from_ns, to_ns FROM gap
  )
  SELECT place, from_ns, max(to_ns) OVER (PARTITION BY place ORDER BY from_ns) AS until FROM placed;

-- broken: the rows of a table or view with the columns place (a CPU, or NULL: any), from_ns and to_ns (NULL: since
-- ever, for ever); and the column `broken`: events of these names are missing in between. Most logs have no gap; they
-- are spared the joins by time.
CREATE MACRO klogger.broken(spans, events) AS TABLE
  WITH span AS MATERIALIZED (
    FROM query_table(spans)
  ), gap AS MATERIALIZED (
    FROM klogger.missing(events)
  )
  SELECT *, false AS broken FROM span WHERE (SELECT count(*) FROM gap) = 0
  UNION ALL
  SELECT s.*, greatest(coalesce(g.until, -1), coalesce(a.until, -1)) > coalesce(s.from_ns, -1) AS broken
  FROM (FROM span WHERE (SELECT count(*) FROM gap) > 0) AS s
  ASOF LEFT JOIN gap AS g
  ON coalesce(s.place::INTEGER, -2) = g.place AND coalesce(s.to_ns, 9223372036854775807) > g.from_ns
  ASOF LEFT JOIN (FROM gap WHERE place = -1) AS a ON coalesce(s.to_ns, 9223372036854775807) > a.from_ns;

-- pairs: what begins with an event of one table or view, and ends with one of another. Both have the columns
--   key     pairs are looked for among events of the same key, each of which does one thing at a time
--   who     must be the same for both: the end of something else is not this one's
--   time
--   begun   of the beginnings: what is to be kept of it, mostly a struct; `ended`: the same of the ends
-- An end belongs to the event right before it among those of its key, if that is a beginning of the same `who`. Of
-- events at one time, ends come first. The answer has one row for each pair, and for each event without a partner:
--   key, who, begun, ended
--   from_ns, to_ns   NULL if it has no beginning, or no end
--   outside          its partner may be outside of the log: there is no event before the end, or after the beginning
CREATE MACRO klogger.pairs(of_begins, of_ends) AS TABLE
  WITH edge AS (
    SELECT key, who, time, true AS begins, begun, NULL AS ended FROM query_table(of_begins)
    UNION ALL
    SELECT key, who, time, false, NULL, ended FROM query_table(of_ends)
  ), step AS MATERIALIZED (
    SELECT *, lag(begins) OVER w AS begins_before, lag(who) OVER w AS who_before, lag(time) OVER w AS time_before,
           lag(begun) OVER w AS begun_before, lead(begins) OVER w AS begins_next, lead(who) OVER w AS who_next
    FROM edge WINDOW w AS (PARTITION BY key ORDER BY time, begins)
  )
  SELECT key, who, begun_before AS begun, ended, time_before AS from_ns, time AS to_ns, false AS outside
  FROM step WHERE NOT begins AND begins_before AND who IS NOT DISTINCT FROM who_before
  UNION ALL
  SELECT key, who, NULL, ended, NULL, time, begins_before IS NULL
  FROM step WHERE NOT begins AND (begins_before IS NOT true OR who IS DISTINCT FROM who_before)
  UNION ALL
  SELECT key, who, begun, NULL, time, NULL, begins_next IS NULL
  FROM step WHERE begins AND (begins_next IS NOT false OR who IS DISTINCT FROM who_next);
"""
