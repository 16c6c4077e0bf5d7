-- SPDX-License-Identifier: GPL-2.0-only
-- quantum: one row for each time that a thread had a CPU, without idle.
--
--   cpu, pid, program   who, where; the program is the name that the thread had at the end
--   from_ns, to_ns      ns since the log's start
--   state               of SCHEDOUT: 0 if preempted; NULL if still running when the log ended
--   next                who ran after it; NULL if still running when the log ended
--   whole               false: began before the log or ended after it
--
-- A SCHEDOUT belongs to the latest event of its CPU, if that is a SCHEDIN of the same thread
-- (klogger.pairs) and no events are missing in between. Else the quantum is left out, and counted
-- in quantum_left_out. Not the latest SCHEDIN: some kernels switch now and then without a
-- tracepoint, and then one SCHEDIN would begin two quanta.

CREATE TEMP VIEW quantum_begin AS SELECT cpu AS key, pid AS who, time, NULL AS begun FROM SCHEDIN;
CREATE TEMP VIEW quantum_end AS
SELECT cpu AS key, pid AS who, time, {'state': state, 'next': next} AS ended FROM SCHEDOUT;
CREATE TEMP TABLE quantum_pair AS
SELECT key AS place, who AS pid, from_ns, to_ns, ended, outside
FROM klogger.pairs('quantum_begin', 'quantum_end') WHERE who <> 0;
CREATE TEMP TABLE quantum_seen AS
SELECT * EXCLUDE (place), place AS cpu FROM klogger.broken('quantum_pair', ['SCHEDIN', 'SCHEDOUT']);
DROP TABLE quantum_pair;

-- Threads that had a CPU when the log began have no SCHEDIN; then the log's start, or the start of
-- the thread if it is later, stands for it. In a flight recording the beginning was overwritten:
-- nothing is known of it. Quanta of threads that had a CPU when the log ended count up to its end,
-- if it has one.
CREATE TEMP VIEW quantum_all AS
SELECT cpu, pid, from_ns, to_ns AS time, ended.state AS state, ended.next AS next, true AS whole
FROM quantum_seen WHERE from_ns IS NOT NULL AND to_ns IS NOT NULL AND NOT broken
UNION ALL
SELECT s.cpu, s.pid, greatest(coalesce(t.from_ns, 0), 0), s.to_ns, s.ended.state, s.ended.next,
    false
FROM quantum_seen AS s
LEFT JOIN (SELECT pid, min(from_ns) AS from_ns FROM klogger.process GROUP BY pid) AS t USING (pid)
WHERE s.from_ns IS NULL AND s.outside AND NOT s.broken
    AND NOT (SELECT overwrite FROM klogger.recording)
UNION ALL
SELECT s.cpu, s.pid, s.from_ns, r.to_ns, NULL, NULL, false
FROM quantum_seen AS s, klogger.recording AS r
WHERE s.to_ns IS NULL AND s.outside AND NOT s.broken AND r.finished AND s.from_ns < r.to_ns;

CREATE TEMP TABLE quantum AS
SELECT cpu, pid, program, from_ns, time AS to_ns, state, next, whole
FROM klogger.with_program('quantum_all');

-- Both ends of one quantum may be there and not be joined: hence the greater of two numbers. With
-- events missing, or an end of the log that is not known, that is the reason. Else it is the
-- kernel, which did not report a switch: the log has lost nothing, and says so.
CREATE TEMP VIEW quantum_sure AS
SELECT count(*) = 0 AS sure FROM klogger.ledger
WHERE (severity IN ('loss', 'error') OR key IN ('excluded', 'rate_limited'))
    AND (event IS NULL OR event IN ('SCHEDIN', 'SCHEDOUT'));
CREATE TEMP TABLE quantum_left_out AS
WITH part AS (
    SELECT from_ns, to_ns, outside,
           broken OR outside AND CASE WHEN from_ns IS NULL
               THEN (SELECT overwrite FROM klogger.recording)
               ELSE NOT (SELECT finished FROM klogger.recording) END
           OR NOT outside AND (from_ns IS NULL OR to_ns IS NULL) AND NOT (FROM quantum_sure)
               AS missing
    FROM quantum_seen
), kind AS (
    SELECT 'missing' AS why, count(*) FILTER (from_ns IS NOT NULL AND to_ns IS NOT NULL)
           + greatest(count(*) FILTER (from_ns IS NULL), count(*) FILTER (to_ns IS NULL)) AS count
    FROM part WHERE missing
    UNION ALL
    SELECT 'unreported', greatest(count(*) FILTER (from_ns IS NULL),
                                  count(*) FILTER (to_ns IS NULL))
    FROM part WHERE NOT missing AND NOT outside AND (from_ns IS NULL OR to_ns IS NULL)
)
SELECT why, count FROM kind WHERE count > 0;

CREATE TEMP TABLE quantum_warning AS
SELECT format('Left out, because the beginning or the end is not in the log: {:,} {}.', count,
              CASE count WHEN 1 THEN 'quantum' ELSE 'quanta' END) AS warning
FROM quantum_left_out WHERE why = 'missing'
UNION ALL
SELECT format('Left out, although no event is missing: {:,} of {:,} quanta, of which the kernel '
              'reported only one of the two switches.', count,
              count + (SELECT count(*) FROM quantum)) AS warning
FROM quantum_left_out WHERE why = 'unreported'
UNION ALL
SELECT 'Threads of the recorder were next after more than 5 % of the quanta of: '
       || string_agg(format('{} ({:,} of {:,})', program, cut, quanta), ', '
           ORDER BY cut DESC, program)
FROM (
    SELECT program, count(*) AS quanta,
           count(*) FILTER (state = 0 AND next IN (SELECT pid FROM klogger.recorder)) AS cut
    FROM quantum GROUP BY program HAVING cut > 0.05 * quanta ORDER BY cut DESC, program LIMIT 5
) HAVING count(*) > 0;

-- Threads of which quanta may be left out between two that are there.
CREATE TEMP TABLE quantum_gap AS SELECT DISTINCT pid FROM quantum_seen
WHERE broken OR from_ns IS NULL OR to_ns IS NULL;

DROP VIEW quantum_all;
DROP TABLE quantum_seen;

-- The programs that a picture shows by name: those with the most CPU time or the most quanta.
-- `shown` is the name, or 'other'.
CREATE TEMP TABLE quantum_program AS
WITH total AS (
    SELECT program, sum(to_ns - from_ns) AS ns, count(*) AS quanta FROM quantum GROUP BY program
), weighed AS (
    SELECT *, greatest(ns / sum(ns) OVER (), quanta / sum(quanta) OVER ()) AS weight FROM total
), ranked AS (
    SELECT *, row_number() OVER (ORDER BY weight DESC, program) AS rank FROM weighed
)
SELECT program, ns, quanta, rank, CASE WHEN rank <= 9 THEN program ELSE 'other' END AS shown
FROM ranked;
