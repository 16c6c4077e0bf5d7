-- SPDX-License-Identifier: GPL-2.0-only
-- title: Latency over time
-- question: When did operations take long, and was the journal being committed?
-- order: 30
-- events: FILE_CALL, NAME_CALL, RING_CALL, STUCK_CALL, FILE_SYSTEM, OPEN_FILE
-- include: _operations
-- picture: timeline x=from_ns x2=to_ns row=row colour=what y=low y2=high
-- column second: second of the log
-- column operations [count]: that returned in it
-- column p50 [ns]: half of these took no longer
-- column p99 [ns]: 99 % of them
-- column longest [ns, bar]: the longest
-- column commits [share]: part of this second in which a journal was being committed
-- column row: at least; the decade of what it took
-- column from_ns [ns]: when it began
-- column to_ns [ns]: when it ended; of short ones a little later, so that they are seen
-- column what: system call, or commit
-- column low: place within the row, by latency
-- column high: place within the row, by latency
-- note: The picture has the slowest 3000 operations and up to 1000 others, of the five upper
--   decades. Commits are those of journals whose schema was recorded, such as ext4.
-- empty: no thread in scope made such a call while the log was recorded

CREATE TEMP TABLE over_time_commit AS
SELECT from_ns, coalesce(to_ns, (SELECT to_ns FROM klogger.recording)) AS to_ns
FROM klogger.made_span WHERE pid IS NULL AND layer = 'journal';
CREATE TEMP VIEW over_time_done AS
SELECT id, from_ns, to_ns, to_ns - from_ns AS ns, call, to_ns // 1000000000 AS second
FROM operations_done WHERE to_ns IS NOT NULL;
SET VARIABLE over_time_least = (SELECT (to_ns - from_ns) // 400 FROM klogger.recording);
-- Parts of seconds, as commits may overlap.
CREATE TEMP TABLE over_time_share AS
WITH started AS (
    SELECT from_ns, to_ns, max(to_ns) OVER (ORDER BY from_ns, to_ns ROWS BETWEEN UNBOUNDED PRECEDING
        AND 1 PRECEDING) AS before FROM over_time_commit
), alone AS (
    SELECT greatest(from_ns, coalesce(before, from_ns)) AS from_ns, to_ns FROM started
    WHERE to_ns > coalesce(before, from_ns)
)
SELECT second, sum(least(to_ns, (second + 1) * 1000000000) - greatest(from_ns, second * 1000000000))
    / 1e9 AS share
FROM (SELECT *, unnest(range(greatest(from_ns, 0) // 1000000000, to_ns // 1000000000 + 1)) AS second
    FROM alone)
GROUP BY second;

-- table
SELECT second, operations, p[1] AS p50, p[2] AS p99, longest, coalesce(s.share, 0) AS commits
FROM (
    SELECT second, count(*) AS operations, quantile_disc(ns, [0.5, 0.99]) AS p, max(ns) AS longest
    FROM over_time_done GROUP BY second
) LEFT JOIN over_time_share AS s USING (second) ORDER BY second;

-- picture
WITH dot AS (
    FROM (FROM over_time_done ORDER BY ns DESC, id LIMIT 3000)
    UNION
    FROM (FROM over_time_done
        WHERE id % greatest((SELECT count(*) // 1000 FROM over_time_done), 1) = 0
        ORDER BY id LIMIT 1000)
), placed AS (
    SELECT *, floor(log10(greatest(ns, 1)))::INTEGER AS decade,
        log10(greatest(ns, 1)) - floor(log10(greatest(ns, 1))) AS high FROM dot
), decade AS (
    SELECT unnest(range(greatest(min(decade), max(decade) - 4), max(decade) + 1)) AS decade
    FROM placed
)
SELECT row, greatest(from_ns, 0) AS from_ns, to_ns, what, low, high FROM (
    SELECT duration((10 ** decade)::BIGINT) AS row, from_ns, to_ns, what, low, high, decade
    FROM (
        SELECT d.decade, c.from_ns, c.to_ns, 'commit' AS what, 0.0 AS low, 1.0 AS high
        FROM decade AS d,
            (FROM over_time_commit ORDER BY to_ns - from_ns DESC, from_ns LIMIT 400) AS c
        UNION ALL
        SELECT decade, from_ns, greatest(to_ns, from_ns + getvariable('over_time_least')), call,
            high * 0.9, high * 0.9 + 0.1
        FROM placed SEMI JOIN decade USING (decade)
    )
) ORDER BY decade DESC, what <> 'commit', from_ns, what;

-- finding
SELECT format('In second {} the longest operation took {}; in half of the seconds none took more '
    'than {}.', arg_max(second, longest), duration(max(longest)),
    duration(quantile_disc(longest, 0.5)))
FROM (SELECT second, max(ns) AS longest FROM over_time_done GROUP BY second)
HAVING count(*) > 1;
