-- SPDX-License-Identifier: GPL-2.0-only
-- What all analyses of `xfs` share. Ends of waits say how long they took, so that each is known by
-- one event.

-- Times of a log that is not whole may be too large.
CREATE TEMP MACRO xfs_ns(ns) AS CASE WHEN ns IS NOT NULL
    THEN greatest(least(ns, 9223372036854775807), 0)::BIGINT END;

-- Types of transactions by the space that they reserve, for events that only have that.
CREATE TEMP TABLE xfs_type AS
SELECT device, unit, mode(kind) AS kind FROM TRANSACTION GROUP BY device, unit;

-- Waits for space in the log. Those that had not ended have no to_ns.
CREATE TEMP TABLE xfs_sleep AS
WITH ended AS (
    SELECT tid, time, device, unit, took, false AS still FROM LOG_WOKEN
    UNION ALL SELECT s.tid, s.time, s.device, s.unit, NULL, true
    FROM (SELECT tid, max_by({'time': time, 'device': device, 'unit': unit}, time) AS s
          FROM LOG_SLEEP GROUP BY tid) AS l, (SELECT l.tid, unnest(l.s)) AS s
    WHERE NOT EXISTS (FROM LOG_WOKEN AS w WHERE w.tid = s.tid AND w.time > s.time)
)
SELECT e.tid AS pid, e.device, e.unit, CASE WHEN still THEN e.time ELSE e.time - xfs_ns(took) END
        AS from_ns, CASE WHEN NOT still THEN e.time END AS to_ns, xfs_ns(took) AS ns, s.again,
    s.used, s.reserved, s.size, k.kind
FROM ended AS e ASOF LEFT JOIN LOG_SLEEP AS s ON s.tid = e.tid AND s.time <= e.time
LEFT JOIN xfs_type AS k ON k.device = e.device AND k.unit = e.unit;

-- Where a thread slept that had to wait for the log or for its data.
CREATE TEMP TABLE xfs_where AS
SELECT id, CASE
    WHEN list_bool_or(list_transform(frames, lambda f: starts_with(f, 'xlog_wait_on_iclog')))
        THEN 'log'
    WHEN list_bool_or(list_transform(frames, lambda f: starts_with(f, 'xlog_cil_force_seq')
        OR starts_with(f, 'xlog_cil_push_now'))) THEN 'checkpoint'
    WHEN list_bool_or(list_transform(frames, lambda f: starts_with(f, 'xlog_cil_')))
        THEN 'checkpoint full'
    WHEN list_bool_or(list_transform(frames, lambda f: starts_with(f, 'blkdev_issue_flush')
        OR starts_with(f, 'xfs_blkdev_issue_flush'))) THEN 'flush'
    WHEN list_bool_or(list_transform(frames, lambda f: starts_with(f, 'rwsem_')
        OR starts_with(f, '__down') OR starts_with(f, '__mutex'))) THEN 'lock'
    WHEN list_bool_or(list_transform(frames, lambda f: starts_with(f, 'folio_wait')
        OR starts_with(f, 'file_write_and_wait') OR contains(f, 'filemap_fdata'))) THEN 'data'
    WHEN list_bool_or(list_transform(frames, lambda f: starts_with(f, 'xlog_')
        OR starts_with(f, 'xfs_log_'))) THEN 'log'
    ELSE 'other' END AS place
FROM klogger.stack WHERE kind = 'kernel';
CREATE TEMP TABLE xfs_slept AS
SELECT s.pid, time - xfs_ns(took) AS from_ns, time AS to_ns, xfs_ns(took) AS ns, inode, device, why,
    coalesce(w.place, 'other') AS place
FROM SLEPT AS s LEFT JOIN xfs_where AS w ON w.id = s.stack AND s.stack > 0;

-- A force of the log: the one that the caller asked for, without the one inside of it.
CREATE TEMP TABLE xfs_force AS
SELECT time, tid AS pid, device, inode, coalesce(caller_symbol, hex(caller)) AS caller
FROM FORCE WHERE coalesce(caller_symbol, '') NOT IN ('xfs_log_force', 'xfs_log_force_seq');

-- Pieces that the allocator gave: where the kernel has an event for the whole, that one.
CREATE TEMP VIEW xfs_piece AS
SELECT time, tid AS pid, place(how) AS how, took, device, agno, agbno, got, wanted, least, delayed
FROM XFS_ALLOC WHERE (place(how) = 'xfs_alloc_vextent_finish')
    = coalesce((SELECT bool_or(place(how) = 'xfs_alloc_vextent_finish') FROM XFS_ALLOC), false);

CREATE TEMP MACRO xfs_file(device, inode) AS format('{}:{}', disk(device), inode);
