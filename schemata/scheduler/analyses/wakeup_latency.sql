-- SPDX-License-Identifier: GPL-2.0-only
-- title: Run-queue latency
-- question: How long does a thread that could run wait for a CPU?
-- order: 40
-- events: SCHEDIN, SCHEDOUT, ADD_TO_RUNQ
-- picture: cdf x=wait y=part colour=shown scale=log
-- combine: sum
-- column program: name of the thread when it got its CPU
-- column cause: why it had to wait
-- column waits [count, bar]: times that a thread waited for a CPU
-- column p50 [ns, 0.5 of each]: half of the waits are shorter
-- column p99 [ns, 0.99 of each]: 99 of 100 are shorter
-- column max [ns, max]: the longest
-- column over_1ms [share, less, of waits]: waits of more than 1 ms
-- column lengths [spark, each, sum]: how many waits are how long: under 2 µs, 4 µs, and so on, each
--     bar twice as long, up to over 1 s
-- column shown: program
-- column wait [ns]: time that a thread waited for a CPU
-- column part [share]: waits that are not longer
-- note: From ADD_TO_RUNQ (woken up, or new) to the thread's next SCHEDIN; for a preempted thread
--     from its SCHEDOUT.
-- note: Waits during which events are missing, on any CPU, are left out and counted.
-- note: The picture names the nine programs with the most waits, and draws all others as one.
-- empty: no thread in scope waited for a CPU and got it

-- Whatever comes last before a thread gets a CPU began its wait. If that is a SCHEDOUT in order to
-- sleep (cause NULL), the wake-up is not in the log, and the wait is not known.
CREATE TEMP VIEW wait_begin AS
SELECT pid AS key, 0 AS who, time, CASE WHEN is_new <> 0 THEN 'new' ELSE 'woken' END AS begun
FROM ADD_TO_RUNQ WHERE pid <> 0
UNION ALL
SELECT pid, 0, time, CASE WHEN state = 0 THEN 'preempted' END FROM SCHEDOUT WHERE pid <> 0;
CREATE TEMP VIEW wait_end AS SELECT pid AS key, 0 AS who, time, NULL AS ended FROM SCHEDIN
WHERE pid <> 0;
CREATE TEMP TABLE wait_pair AS
SELECT key AS pid, NULL AS place, from_ns, to_ns, to_ns AS time, begun AS cause, outside
FROM klogger.pairs('wait_begin', 'wait_end') WHERE to_ns IS NOT NULL;
CREATE TEMP TABLE wait_seen AS
FROM klogger.broken('wait_pair', ['SCHEDIN', 'SCHEDOUT', 'ADD_TO_RUNQ']);
DROP TABLE wait_pair;
CREATE TEMP VIEW wait_sure AS SELECT pid, time, from_ns, cause FROM wait_seen
WHERE cause IS NOT NULL AND NOT broken;
CREATE TEMP TABLE wait AS SELECT program, cause, time, time - from_ns AS ns
FROM klogger.with_program('wait_sure');
CREATE TEMP TABLE wait_left_out AS
SELECT count(*) FILTER ((cause IS NULL OR broken) AND NOT (outside AND NOT broken)) AS count
FROM wait_seen;
DROP VIEW wait_sure;
DROP TABLE wait_seen;

-- table
SELECT program, cause, waits, p[1] AS p50, p[2] AS p99, max, over_1ms, octaves(h) AS lengths
FROM (
    SELECT program, cause, count(*) AS waits, quantile_disc(ns, [0.5, 0.99]) AS p, max(ns) AS max,
           count(*) FILTER (ns > 1_000_000) / count(*) AS over_1ms, histogram(octave(ns)) AS h
    FROM wait GROUP BY program, cause
)
ORDER BY waits DESC, program, cause;

-- picture
WITH total AS (
    SELECT program, count(*) AS waits FROM wait GROUP BY program
), ranked AS (
    SELECT program, row_number() OVER (ORDER BY waits DESC, program) AS rank FROM total
), sample AS (
    SELECT CASE WHEN rank <= 9 THEN program ELSE 'other' END AS series, rank AS place, ns
    FROM wait JOIN ranked USING (program)
)
SELECT series AS shown, ns AS wait, part FROM klogger.curve_of('sample', 8)
ORDER BY place, shown, part;

-- finding
SELECT format('Half of all {:,} waits for a CPU were shorter than {}, and 99 of 100 shorter than '
              '{}; the longest was {}.',
              waits, duration(p[1]), duration(p[2]), duration(max))
FROM (SELECT count(*) AS waits, quantile_disc(ns, [0.5, 0.99]) AS p, max(ns) AS max FROM wait
    HAVING count(*) > 0);

-- warning
SELECT format('Left out, because it is not known when they began: {:,} {}.', count,
              CASE count WHEN 1 THEN 'wait' ELSE 'waits' END) FROM wait_left_out WHERE count > 0;

-- samples
SELECT program, cause, time, ns AS wait FROM wait;

-- histogram
SELECT program, cause, klogger.histogram_of(ns) AS each FROM wait GROUP BY program, cause;
