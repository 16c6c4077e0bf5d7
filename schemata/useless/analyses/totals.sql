-- SPDX-License-Identifier: GPL-2.0-only
-- title: Totals
-- question: How many files are looked at, opened and run, in the whole log and between its marks?
-- order: 5
-- events: NAMED, LOOK, COPIED, RING, DESCRIPTORS
-- include: ../../files/analyses/_files
-- picture: stacked x=times y=part colour=what
-- column part: of the log: all of it, or from a mark to the next one
-- column lasts [ns]: how long it is
-- column stats [count]: calls of the stat family, by path or by descriptor
-- column opens [count]: open calls, failed ones included
-- column failed [count]: open calls that failed
-- column absent [share]: failed ones, of all open calls
-- column execs [count]: programs run
-- column others [count]: all other calls with a path
-- column times [count]: calls
-- column what: kind of call
-- empty: no program in scope has looked at a file

CREATE TEMP TABLE totals_part AS
SELECT 0 AS place, 'all' AS part, 0::BIGINT AS from_ns, to_ns FROM klogger.recording
UNION ALL
SELECT row_number() OVER (ORDER BY time), format('{} {}', number, text), time,
    coalesce(lead(time) OVER (ORDER BY time), to_ns)
FROM MARK, klogger.recording;
CREATE TEMP TABLE totals_kind AS
SELECT time, result, CASE WHEN call IN ('stat', 'lstat', 'fstat', 'newfstatat', 'statx') THEN 'stat'
    WHEN opens THEN 'open' WHEN call IN ('execve', 'execveat') THEN 'exec' ELSE 'other' END AS kind
FROM files_look;
CREATE TEMP TABLE totals AS
SELECT place, part, p.to_ns - p.from_ns AS lasts, count(*) FILTER (kind = 'stat') AS stats,
    count(*) FILTER (kind = 'open') AS opens,
    count(*) FILTER (kind = 'open' AND result < 0) AS failed,
    count(*) FILTER (kind = 'exec' AND result = 0) AS execs,
    count(*) FILTER (kind = 'other') AS others
FROM totals_part AS p LEFT JOIN totals_kind AS k
    ON place = 0 OR k.time >= p.from_ns AND k.time < p.to_ns
GROUP BY ALL HAVING stats + opens + execs + others > 0;

-- table
SELECT part, lasts, stats, opens, failed, failed / greatest(opens, 1) AS absent, execs, others
FROM totals ORDER BY place;

-- picture
SELECT part, what, times FROM (
    SELECT place, part, 'stat' AS what, stats AS times FROM totals
    UNION ALL SELECT place, part, 'open, found', opens - failed FROM totals
    UNION ALL SELECT place, part, 'open, failed', failed FROM totals
    UNION ALL SELECT place, part, 'exec', execs FROM totals
    UNION ALL SELECT place, part, 'other', others FROM totals
) WHERE times > 0 ORDER BY place, what LIMIT 200;

-- finding
SELECT format('{:,} stats, {:,} opens ({:,} of them failed), {:,} programs run.', stats, opens,
    failed, execs)
FROM totals WHERE place = 0;
