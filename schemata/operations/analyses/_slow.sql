-- SPDX-License-Identifier: GPL-2.0-only
-- What the time of the slowest operations went to. Each moment of an operation belongs to the
-- first layer, in a fixed order, in which its thread waited: a wait for a commit is the journal's,
-- and not that of the device that the commit waited for. What is left of it is time off the CPU, on
-- the CPU, or, without the schema `scheduler`, unexplained.

-- The slowest 1 %, at least 10 and at most 1000.
-- The first LIMIT is a constant one, for which not all have to be sorted.
CREATE TEMP TABLE slow_operation AS
FROM (
    SELECT id, pid, from_ns, to_ns, call, device, inode, position, asked, result, path
    FROM operations_done WHERE to_ns > from_ns ORDER BY to_ns - from_ns DESC, id LIMIT 1000
)
ORDER BY to_ns - from_ns DESC, id
LIMIT greatest(10, (SELECT count(*) // 100 FROM operations_done WHERE to_ns IS NOT NULL));

CREATE TEMP TABLE slow_layer AS
SELECT * FROM (VALUES ('lock', 1), ('journal', 2), ('allocation', 3), ('page cache', 4),
    ('queue', 5), ('device', 6)) AS l(layer, place);

-- Spans that begin within such an operation of their thread, and those that had begun before: the
-- calls of a thread do not overlap. Of the first four layers those that the thread waited for.
-- Most spans are of other times. Those that can be of one of these operations begin or end in a
-- stretch of time in which the thread had one, or are longer than a stretch, or before the start.
SET VARIABLE slow_end = (SELECT to_ns FROM klogger.recording);
SET VARIABLE slow_stretch = (SELECT greatest((to_ns - from_ns) // 16384, 1) FROM klogger.recording);
CREATE TEMP TABLE slow_near AS
SELECT DISTINCT pid::BIGINT * 1048576 + unnest(range(
        greatest(from_ns, 0) // getvariable('slow_stretch'),
        to_ns // getvariable('slow_stretch') + 1)) AS stretch
FROM slow_operation;
CREATE TEMP TABLE slow_candidate AS
WITH span AS (
    SELECT schema, pid, from_ns, coalesce(to_ns, getvariable('slow_end')) AS to_ns, layer, what,
        bytes, sector, helper
    FROM klogger.made_span WHERE pid IS NOT NULL AND (waits OR layer IN ('queue', 'device'))
), placed AS (
    SELECT *, pid::BIGINT * 1048576 + from_ns // getvariable('slow_stretch') AS first,
        pid::BIGINT * 1048576 + to_ns // getvariable('slow_stretch') AS last FROM span
)
SELECT schema, pid, from_ns, to_ns, layer, klogger.span_text(what, bytes, sector) AS what, helper
FROM placed
WHERE last - first > 1 OR to_ns < 0 OR first IN (SELECT stretch FROM slow_near)
    OR last IN (SELECT stretch FROM slow_near);
CREATE TEMP TABLE slow_part AS
SELECT o.id, o.schema, o.layer, l.place, o.what, o.helper, greatest(o.from_ns, o.begun) AS from_ns,
    least(o.to_ns, o.ended) AS to_ns
FROM (
    SELECT s.*, o.id, o.from_ns AS begun, o.to_ns AS ended
    FROM slow_candidate AS s ASOF JOIN slow_operation AS o
        ON s.pid = o.pid AND s.from_ns >= o.from_ns
    UNION ALL
    SELECT s.*, o.id, o.from_ns, o.to_ns
    FROM slow_candidate AS s ASOF JOIN slow_operation AS o
        ON s.pid = o.pid AND s.from_ns < o.from_ns
) AS o JOIN slow_layer AS l USING (layer)
WHERE o.from_ns < o.ended AND o.to_ns > o.begun;

-- When it was on a CPU.
CREATE TEMP TABLE slow_on_cpu AS
SELECT c.id, greatest(c.from_ns, c.begun) AS from_ns, least(c.to_ns, c.ended) AS to_ns
FROM (
    SELECT s.from_ns, s.to_ns, o.id, o.from_ns AS begun, o.to_ns AS ended
    FROM klogger.cpu_span AS s ASOF JOIN slow_operation AS o
        ON s.pid = o.pid AND s.from_ns >= o.from_ns
    UNION ALL
    SELECT s.from_ns, s.to_ns, o.id, o.from_ns, o.to_ns
    FROM klogger.cpu_span AS s ASOF JOIN slow_operation AS o
        ON s.pid = o.pid AND s.from_ns < o.from_ns
) AS c WHERE c.from_ns < c.ended AND c.to_ns > c.begun;

-- Each operation cut at all ends of these, and each piece with the first layer that covers it. 7:
-- on a CPU; 8: none. A running count of what has begun and not ended tells which cover a piece.
CREATE TEMP TABLE slow_piece AS
WITH edge AS (
    SELECT id, place, from_ns AS since, 1 AS step FROM slow_part
    UNION ALL SELECT id, place, to_ns, -1 FROM slow_part
    UNION ALL SELECT id, 7, from_ns, 1 FROM slow_on_cpu
    UNION ALL SELECT id, 7, to_ns, -1 FROM slow_on_cpu
    UNION ALL SELECT id, 8, from_ns, 0 FROM slow_operation
    UNION ALL SELECT id, 8, to_ns, 0 FROM slow_operation
), moment AS (
    SELECT id, since, sum(step) FILTER (place = 1) AS c1, sum(step) FILTER (place = 2) AS c2,
        sum(step) FILTER (place = 3) AS c3, sum(step) FILTER (place = 4) AS c4,
        sum(step) FILTER (place = 5) AS c5, sum(step) FILTER (place = 6) AS c6,
        sum(step) FILTER (place = 7) AS c7
    FROM edge GROUP BY id, since
), covered AS (
    SELECT id, since AS from_ns, lead(since) OVER w AS to_ns, sum(c1) OVER w AS c1,
        sum(c2) OVER w AS c2, sum(c3) OVER w AS c3, sum(c4) OVER w AS c4, sum(c5) OVER w AS c5,
        sum(c6) OVER w AS c6, sum(c7) OVER w AS c7
    FROM moment WINDOW w AS (PARTITION BY id ORDER BY since)
)
SELECT id, from_ns, to_ns, CASE WHEN c1 > 0 THEN 1 WHEN c2 > 0 THEN 2 WHEN c3 > 0 THEN 3
    WHEN c4 > 0 THEN 4 WHEN c5 > 0 THEN 5 WHEN c6 > 0 THEN 6 WHEN c7 > 0 THEN 7 ELSE 8 END AS place
FROM covered WHERE to_ns > from_ns;

SET VARIABLE slow_with_cpu = (SELECT count(*) > 0 FROM klogger.cpu_span);
CREATE TEMP TABLE slow_share AS
SELECT p.id, p.place, coalesce(l.layer, CASE WHEN p.place = 7 THEN 'running'
    WHEN getvariable('slow_with_cpu') THEN 'not running' ELSE 'unexplained' END) AS cause,
    sum(p.to_ns - p.from_ns)::BIGINT AS ns
FROM slow_piece AS p LEFT JOIN slow_layer AS l USING (place) GROUP BY ALL;
-- The cause of an operation: what most of its time went to.
CREATE TEMP TABLE slow_cause AS
SELECT o.id, o.to_ns - o.from_ns AS ns, s.cause, s.share
FROM slow_operation AS o JOIN (
    SELECT id, arg_max(cause, (ns, -place)) AS cause, max(ns) / greatest(sum(ns), 1) AS share
    FROM slow_share GROUP BY id
) AS s USING (id);
