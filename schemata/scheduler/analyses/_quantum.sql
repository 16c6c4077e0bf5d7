-- SPDX-License-Identifier: GPL-2.0-only
-- quantum: one row for each time that a thread had a CPU, without idle.
--
--   cpu, pid, program   who, where; the program is the name that the thread had at the end
--   from_ns, to_ns      ns since the log's start
--   state               of SCHEDOUT: 0 if preempted; NULL if still running when the log ended
--   next                who ran after it; NULL if still running when the log ended
--   whole               false: began before the log or ended after it
--
-- A SCHEDOUT belongs to the latest event of its CPU, if that is a SCHEDIN of the same thread and no events are missing in
-- between. Else the quantum is left out, and counted in quantum_left_out. Not the latest SCHEDIN: some kernels switch now
-- and then without a tracepoint, and then one SCHEDIN would begin two quanta.

-- Where the replay of a CPU must start anew. A LOST record has the time of the event that it stands before, but is not
-- a part of it: hence the 1 ns.
CREATE TEMP TABLE quantum_break AS
WITH missing AS (
    SELECT * FROM klogger.gap WHERE event IS NULL OR event IN ('SCHEDIN', 'SCHEDOUT')
), placed AS (
    SELECT cpu, from_ns, to_ns FROM missing WHERE cpu IS NOT NULL
    UNION ALL
    SELECT c.cpu, m.from_ns, m.to_ns
    FROM missing AS m, (SELECT DISTINCT cpu FROM SCHEDIN UNION SELECT DISTINCT cpu FROM SCHEDOUT) AS c
    WHERE m.cpu IS NULL
)
SELECT cpu, from_ns AS time FROM placed UNION SELECT cpu, to_ns - 1 FROM placed;

-- Threads that had a CPU when the log began have no SCHEDIN; then the log's start, or the start of the thread if it is
-- later, stands for it. In a flight recording the beginning was overwritten: nothing is known of it.
-- At one time a SCHEDOUT (0) comes before a SCHEDIN (1), and a break (2) after both.
CREATE TEMP TABLE quantum_pair AS
WITH step AS (
    SELECT cpu, time, 0 AS kind, pid, state, next FROM SCHEDOUT
    UNION ALL
    SELECT cpu, time, 1, pid, NULL, NULL FROM SCHEDIN
    UNION ALL
    SELECT cpu, time, 2, NULL, NULL, NULL FROM quantum_break
)
SELECT cpu, pid, time, state, next, lag(time) OVER steps AS from_ns,
       from_ns IS NOT NULL AND lag(CASE kind WHEN 1 THEN pid END) OVER steps IS DISTINCT FROM pid AS broken
FROM step WINDOW steps AS (PARTITION BY cpu ORDER BY time, kind)
QUALIFY kind = 0 AND pid <> 0;

CREATE TEMP VIEW quantum_first AS
SELECT p.cpu, p.pid, p.time, p.state, p.next, greatest(coalesce(t.from_ns, 0), 0) AS from_ns
FROM quantum_pair AS p LEFT JOIN (SELECT pid, min(from_ns) AS from_ns FROM klogger.process GROUP BY pid) AS t USING (pid)
WHERE p.from_ns IS NULL AND NOT (SELECT overwrite FROM klogger.recording)
QUALIFY row_number() OVER (PARTITION BY p.cpu ORDER BY p.time) = 1;

-- Threads that had a CPU when the log ended. Their quanta count up to its end, if the log has an end and nothing is
-- missing after they began.
CREATE TEMP VIEW quantum_last AS
SELECT i.cpu, i.pid, r.to_ns AS time, i.time AS from_ns
FROM (SELECT cpu, arg_max(pid, time) AS pid, max(time) AS time FROM SCHEDIN GROUP BY cpu) AS i
LEFT JOIN (SELECT cpu, max(time) AS time FROM SCHEDOUT GROUP BY cpu) AS o USING (cpu)
LEFT JOIN (SELECT cpu, max(time) AS time FROM quantum_break GROUP BY cpu) AS b USING (cpu), klogger.recording AS r
WHERE i.pid <> 0 AND r.finished AND i.time < r.to_ns
    AND coalesce(o.time <= i.time, true) AND coalesce(b.time < i.time, true);

CREATE TEMP VIEW quantum_all AS
SELECT cpu, pid, from_ns, time, state, next, true AS whole FROM quantum_pair WHERE from_ns IS NOT NULL AND NOT broken
UNION ALL
SELECT cpu, pid, from_ns, time, state, next, false FROM quantum_first
UNION ALL
SELECT cpu, pid, from_ns, time, NULL, NULL, false FROM quantum_last;

CREATE TEMP TABLE quantum AS
SELECT cpu, pid, program, from_ns, time AS to_ns, state, next, whole FROM klogger.with_program('quantum_all');

-- Mostly both ends of one quantum are there but may not be joined: hence the greater of the two numbers.
CREATE TEMP TABLE quantum_left_out AS
SELECT greatest((SELECT count(*) FROM SCHEDOUT WHERE pid <> 0) - count(*) FILTER (state IS NOT NULL),
                (SELECT count(*) FROM SCHEDIN WHERE pid <> 0) - count(*) FILTER (whole OR state IS NULL)) AS count
FROM quantum;

CREATE TEMP TABLE quantum_warning AS
SELECT format('Left out, because the beginning or the end is not in the log: {:,} {}.', count,
              CASE count WHEN 1 THEN 'quantum' ELSE 'quanta' END) AS warning
FROM quantum_left_out WHERE count > 0
UNION ALL
SELECT 'The recorder itself cut quanta short, which without it were longer: '
       || string_agg(format('{} ({:,} of {:,})', program, cut, quanta), ', ' ORDER BY cut DESC, program)
FROM (
    SELECT program, count(*) AS quanta,
           count(*) FILTER (state = 0 AND next IN (SELECT pid FROM klogger.recorder)) AS cut
    FROM quantum GROUP BY program HAVING cut > 0.05 * quanta ORDER BY cut DESC, program LIMIT 5
) HAVING count(*) > 0;

-- Threads of which quanta may be left out between two that are there.
CREATE TEMP TABLE quantum_gap AS SELECT DISTINCT pid FROM quantum_pair WHERE broken OR from_ns IS NULL;

DROP VIEW quantum_all;
DROP VIEW quantum_first;
DROP TABLE quantum_pair;

-- The programs that a picture shows by name: those with the most CPU time or the most quanta. `shown` is the name, or
-- 'other'.
CREATE TEMP TABLE quantum_program AS
WITH total AS (
    SELECT program, sum(to_ns - from_ns) AS ns, count(*) AS quanta FROM quantum GROUP BY program
), weighed AS (
    SELECT *, greatest(ns / sum(ns) OVER (), quanta / sum(quanta) OVER ()) AS weight FROM total
), ranked AS (
    SELECT *, row_number() OVER (ORDER BY weight DESC, program) AS rank FROM weighed
)
SELECT program, ns, quanta, rank, CASE WHEN rank <= 9 THEN program ELSE 'other' END AS shown FROM ranked;
