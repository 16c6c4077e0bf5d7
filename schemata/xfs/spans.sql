-- SPDX-License-Identifier: GPL-2.0-only
-- include: _xfs

-- Whose time went to XFS itself, to its log, allocation, locks and metadata.

-- Who wrote the piece of the log that a thread waited for.
CREATE TEMP TABLE xfs_writer AS
SELECT a.tid AS pid, a.time, w.tid AS writer
FROM (FROM LOG_WAIT WHERE sleeps) AS a
ASOF JOIN LOG_WRITE AS w ON w.piece = a.piece AND w.device = a.device AND w.time <= a.time;

CREATE TEMP TABLE xfs_span AS
SELECT pid, from_ns, to_ns, 'journal' AS layer,
    left(format('log space: {}', coalesce(transaction(kind), 'transaction')), 40) AS what,
    device, NULL::UBIGINT AS inode, NULL::INTEGER AS helper, true AS waits
FROM xfs_sleep
UNION ALL
SELECT s.pid, s.from_ns, s.to_ns, CASE place WHEN 'data' THEN 'page cache'
        WHEN 'flush' THEN 'device' WHEN 'lock' THEN 'lock' WHEN 'other' THEN 'queue'
        ELSE 'journal' END,
    CASE place WHEN 'data' THEN 'data are written' WHEN 'flush' THEN 'flush of the disk'
        WHEN 'log' THEN 'log is written' WHEN 'lock' THEN 'lock'
        WHEN 'checkpoint' THEN 'checkpoint is formatted'
        WHEN 'checkpoint full' THEN 'checkpoint is too large' ELSE 'asleep' END,
    s.device, nullif(s.inode, 0), nullif(w.writer, s.pid), true
FROM xfs_slept AS s ASOF LEFT JOIN xfs_writer AS w
    ON w.pid = s.pid AND w.time <= s.to_ns AND s.place = 'log'
WHERE place <> 'other' OR why & 1 = 1
UNION ALL
SELECT pid, time - xfs_ns(took), time, 'allocation', left(format('{} of {} blocks in group {}', got,
        wanted, agno), 40), device, NULL, NULL, true
FROM xfs_piece WHERE took > 0
UNION ALL
SELECT tid, time - xfs_ns(took), time, 'lock', inode_lock(lock), device, inode, NULL, true
FROM XFS_LOCK_WAITED
UNION ALL
SELECT l.tid, l.time, NULL, 'lock', inode_lock(l.lock), l.device, l.inode, NULL, true
FROM XFS_LOCK_WAIT AS l WHERE NOT EXISTS (
    FROM XFS_LOCK_WAITED AS e WHERE e.tid = l.tid AND e.lock = l.lock AND e.time > l.time)
UNION ALL
SELECT tid, time - xfs_ns(took), time, 'lock', format('buffer at sector {}', sector), device, NULL,
    NULL, true
FROM BUFFER_WAITED
UNION ALL
SELECT tid, time - xfs_ns(took), time, 'device', format('metadata {} B at {}', bytes, sector),
    device, NULL, NULL, true
FROM BUFFER_IO;
