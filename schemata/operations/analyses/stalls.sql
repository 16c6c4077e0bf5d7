-- SPDX-License-Identifier: GPL-2.0-only
-- title: Stalls
-- question: Why did the slowest 1 % of the operations stall?
-- order: 15
-- events: FILE_CALL, NAME_CALL, RING_CALL, STUCK_CALL, FILE_SYSTEM, OPEN_FILE
-- include: _operations, _slow
-- picture: stacked x=ns y=operation colour=cause
-- column cause: what they waited for; unexplained: in no span, so perhaps running
-- column operations [count]: those of which it is the greatest part
-- column ns [ns, bar]: time of all of the slowest operations in it
-- column of_all [share]: of the time of all of the slowest operations
-- column longest [ns]: of these operations the longest one
-- column example: number of that one, for klogger report --operation
-- column operation: call and number, the slowest first
-- note: Each moment belongs to the first of lock, journal, allocation, page cache, queue and device
--   in which the thread waited; then, if the schema scheduler was recorded, to running or not
--   running; without it, the rest is unexplained.
-- note: A request to the disk may have been for later, such as read-ahead: queue and device are
--   then too great a part.
-- note: The slowest 1 % are at least 10 operations and at most 1000.
-- empty: no thread in scope made such a call while the log was recorded

CREATE TEMP TABLE stalls_cause AS
SELECT s.cause, s.place, count(*) FILTER (c.cause = s.cause) AS operations,
    least(sum(s.ns), 9223372036854775807)::BIGINT AS ns,
    max(c.ns) FILTER (c.cause = s.cause) AS longest,
    arg_max(c.id, (c.ns, -c.id)) FILTER (c.cause = s.cause) AS example
FROM slow_share AS s JOIN slow_cause AS c USING (id) GROUP BY s.cause, s.place;

-- table
SELECT cause, operations, ns, ns / greatest(sum(ns) OVER (), 1) AS of_all, longest, example
FROM stalls_cause ORDER BY ns DESC, place;

-- picture
SELECT format('{} {}', o.call, o.id) AS operation, s.cause, s.ns
FROM (SELECT * FROM slow_operation ORDER BY to_ns - from_ns DESC, id LIMIT 30) AS o
JOIN slow_share AS s USING (id) ORDER BY o.to_ns - o.from_ns DESC, o.id, s.place;

-- finding
SELECT format('The slowest {:,} operations waited most for: {} ({:.0f} % of their time); {:.0f} % '
    'is unexplained.', (SELECT count(*) FROM slow_operation), arg_max(cause, ns),
    100.0 * max(ns) / sum(ns), 100 * coalesce(sum(ns) FILTER (cause = 'unexplained'), 0) / sum(ns)),
    least(max(ns) / greatest((SELECT to_ns - from_ns FROM klogger.recording), 1), 1)
FROM stalls_cause WHERE cause NOT IN ('unexplained', 'running')
    AND ns > 0 HAVING count(*) > 0;

-- warning
SELECT format('{:.0f} % of the time of the slowest operations is unexplained: record block, and '
    'ext4 or xfs, and scheduler as well', 100 * share)
FROM (SELECT coalesce(sum(ns) FILTER (cause = 'unexplained'), 0) / sum(ns) AS share
    FROM stalls_cause) WHERE share > 0.1;
