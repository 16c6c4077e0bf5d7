-- SPDX-License-Identifier: GPL-2.0-only
-- title: Slowest operations
-- question: Which operations took longest, and what was their time spent on?
-- order: 20
-- events: FILE_CALL, NAME_CALL, RING_CALL, STUCK_CALL, FILE_SYSTEM, OPEN_FILE
-- include: _operations, _slow
-- column operation: number of the operation, for klogger report --operation
-- column took [ns, bar]: how long it took
-- column program: name of the thread
-- column what: system call, bytes and position
-- column file: path within its file system, or as the program gave it
-- column begun [ns]: when it began
-- column cause: layer with most of its time
-- column share [share]: of its time in that layer
-- column spans: the longest spans of it
-- note: Spans are of those schemata of storage that were recorded as well: block, ext4, xfs,
--   writeback; see docs/waterfall.md.
-- empty: no thread in scope made such a call while the log was recorded

CREATE TEMP TABLE slow_operations_first AS
SELECT o.*, o.from_ns AS time, c.cause, c.share
FROM slow_operation AS o JOIN slow_cause AS c USING (id)
ORDER BY o.to_ns - o.from_ns DESC, o.id LIMIT 30;
CREATE TEMP TABLE slow_operations_span AS
SELECT id, string_agg(what || ' ' || duration(ns), '; ' ORDER BY ns DESC, what) AS spans FROM (
    SELECT id, what, to_ns - from_ns AS ns,
        row_number() OVER (PARTITION BY id ORDER BY to_ns - from_ns DESC, what) AS rank
    FROM slow_part SEMI JOIN slow_operations_first USING (id)
) WHERE rank <= 3 GROUP BY id;

-- table
SELECT o.id AS operation, o.to_ns - o.from_ns AS took, o.program,
    o.call || CASE WHEN o.asked > 0 THEN format(' {} B', o.asked) ELSE '' END
        || CASE WHEN o.position >= 0 THEN format(' at {}', o.position) ELSE '' END AS what,
    coalesce(o.path, f.path, '') AS file, greatest(o.from_ns, 0) AS begun, o.cause, o.share,
    coalesce(s.spans, '') AS spans
FROM klogger.with_program('slow_operations_first') AS o
LEFT JOIN operations_file AS f USING (device, inode)
LEFT JOIN slow_operations_span AS s USING (id)
ORDER BY took DESC, operation;

-- finding
SELECT format('Operation {} of {}, {}, took {}: {}.', id, program, call, duration(to_ns - from_ns),
    CASE WHEN cause = 'unexplained' THEN 'what for is not recorded'
        ELSE format('{:.0f} % of it {}', share * 100, cause) END)
FROM klogger.with_program('slow_operations_first') ORDER BY to_ns - from_ns DESC, id LIMIT 1;
