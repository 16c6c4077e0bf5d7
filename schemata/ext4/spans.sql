-- SPDX-License-Identifier: GPL-2.0-only
-- include: _ext4

-- Who waits for a journal, an allocation or the lock of a file.
CREATE TEMP TABLE ext4_span AS
WITH phases AS (
    SELECT device, transaction, tid, start_ns AS from_ns, locking_ns AS to_ns, 'begun' AS phase
    FROM ext4_commit WHERE locking_ns IS NOT NULL
    UNION ALL SELECT device, transaction, tid, locking_ns, flushing_ns, 'locking'
    FROM ext4_commit WHERE flushing_ns IS NOT NULL
    UNION ALL SELECT device, transaction, tid, flushing_ns, logging_ns, 'flushing'
    FROM ext4_commit WHERE logging_ns IS NOT NULL
    UNION ALL SELECT device, transaction, tid, logging_ns, end_ns, 'logging'
    FROM ext4_commit WHERE logging_ns IS NOT NULL
)
SELECT NULL::INTEGER AS pid, from_ns, to_ns, 'journal' AS layer,
    format('commit {}: {}', transaction, phase) AS what, device, NULL::UBIGINT AS inode,
    tid AS helper, false AS waits
FROM phases
UNION ALL
SELECT pid, from_ns, to_ns, 'journal', 'wait to enter the journal', device, NULL, NULL, true
FROM ext4_entry
UNION ALL
-- Before the commit has begun, fsync() waits for the pages that it has written. If there are none,
-- it waits for the journal's thread, or for the commit before.
SELECT s.pid, CASE WHEN w.time >= s.from_ns THEN greatest(s.from_ns, s.start_ns) ELSE s.from_ns END,
    s.to_ns, 'journal', format('wait for commit {}', s.transaction), s.device, s.inode, s.helper,
    true
FROM (SELECT * FROM ext4_sync WHERE waited) AS s
ASOF LEFT JOIN (SELECT tid, time FROM CALL WHERE what = 3) AS w
    ON w.tid = s.pid AND w.time <= s.to_ns
UNION ALL
-- With data=journal, what has to be written out now has to be committed first: the thread asks for
-- a commit, and waits for it.
SELECT w.tid, c.start_ns, c.end_ns, 'journal', format('wait for commit {}', c.transaction),
    w.device, w.inode, c.tid, true
FROM (
    SELECT tid, time - ext4_ns(took) AS from_ns, time AS to_ns, device, inode
    FROM CALL WHERE what = 3 AND mode = 1
) AS w ASOF JOIN ext4_commit AS c ON c.device = w.device AND c.start_ns >= w.from_ns
WHERE c.requested AND c.end_ns <= w.to_ns
UNION ALL
SELECT tid, time - ext4_ns(took), time, 'journal',
    left(regexp_replace(place(site), '^return ', ''), 40), device, NULL, NULL, true
FROM STALL
UNION ALL
SELECT tid, time - ext4_ns(took), time, 'journal', format('fast commit {}', transaction), device,
    NULL, NULL, true
FROM FAST_COMMIT
UNION ALL
-- It may wait for the journal there as well, which comes before the page cache.
SELECT tid, time - ext4_ns(took), time, 'page cache', 'waits for a page to write to', device, inode,
    NULL, true
FROM CALL WHERE what = 4
UNION ALL
SELECT tid, time - ext4_ns(took), time, 'allocation',
    format('{} blocks for {}', given, asked), device, inode, NULL, true
FROM ALLOC
UNION ALL
SELECT tid, time - ext4_ns(took), time, 'lock',
    CASE WHEN directory THEN 'lock of directory' ELSE 'lock of file' END, device, inode,
    CASE WHEN holder > 0 THEN holder END, true
FROM INODE_LOCK;
