-- SPDX-License-Identifier: GPL-2.0-only
-- title: Waits for locks of inodes
-- question: For which files' locks do threads wait, where in XFS, and how long?
-- order: 25
-- events: XFS_LOCK_WAIT, XFS_LOCK_WAITED
-- include: _xfs
-- picture: bars x=waited y=inode
-- column inode: inode; its device and number
-- column lock: IOLOCK (reads and writes), ILOCK (the inode itself) or MMAPLOCK (page faults)
-- column caller: function that wanted it most often
-- column waits [count]: waits that ended
-- column exclusive [count]: of them, for the lock alone; the others share it
-- column waited [ns, bar, less]: time in them, of all threads
-- column p50 [ns]: half of the waits took no longer
-- column p99 [ns]: 99 of 100 took no longer
-- column max [ns]: the longest
-- column threads [count]: that waited
-- column open [count]: waits that had not ended
-- note: What is waited for while spinning, and locks that the kernel takes for XFS (those of
--     directories, in path look-ups), are not seen here; the schema 'locking' has those.
-- empty: no thread waited for the lock of an inode in XFS

CREATE TEMP TABLE xfs_locks_wait AS
SELECT e.tid AS pid, e.time, e.device, e.inode, e.lock, xfs_ns(e.took) AS ns,
    b.caller_symbol AS caller, b.shared
FROM XFS_LOCK_WAITED AS e
ASOF LEFT JOIN XFS_LOCK_WAIT AS b ON b.tid = e.tid AND b.lock = e.lock AND b.time <= e.time;
CREATE TEMP TABLE xfs_locks_open AS
SELECT l.device, l.inode, l.lock, count(*) AS open, mode(l.caller_symbol) AS caller
FROM XFS_LOCK_WAIT AS l WHERE NOT EXISTS (
    FROM XFS_LOCK_WAITED AS e WHERE e.tid = l.tid AND e.lock = l.lock AND e.time > l.time)
GROUP BY ALL;
CREATE TEMP TABLE xfs_locks AS
WITH ended AS (
    SELECT device, inode, lock, mode(caller) AS caller, count(*) AS waits,
        count(*) FILTER (NOT shared) AS exclusive, xfs_ns(sum(ns)) AS waited,
        quantile_disc(ns, [0.5, 0.99]) AS p, max(ns) AS max, count(DISTINCT pid) AS threads
    FROM xfs_locks_wait GROUP BY device, inode, lock
)
SELECT device, inode, lock, coalesce(e.caller, o.caller) AS caller, coalesce(waits, 0) AS waits,
    coalesce(exclusive, 0) AS exclusive, coalesce(waited, 0) AS waited, p, max,
    coalesce(threads, 0) AS threads, coalesce(open, 0) AS open
FROM ended AS e FULL JOIN xfs_locks_open AS o USING (device, inode, lock);

-- table
SELECT xfs_file(device, inode) AS inode, inode_lock(lock) AS lock, caller, waits, exclusive, waited,
    p[1] AS p50, p[2] AS p99, max, threads, open
FROM xfs_locks ORDER BY waited DESC, open DESC, device, xfs_locks.inode, xfs_locks.lock LIMIT 200;

-- picture
SELECT format('{} {}', xfs_file(device, inode), inode_lock(lock)) AS inode, waited FROM xfs_locks
ORDER BY waited DESC, device, xfs_locks.inode, lock LIMIT 15;

-- finding
WITH worst AS (FROM xfs_locks WHERE waited > 0 ORDER BY waited DESC, device, inode LIMIT 1)
SELECT format('{:,} threads waited {} for the {} of inode {}, mostly in {}, {:,} of {:,} times to'
    ' have it alone.', threads, duration(waited), inode_lock(lock), xfs_file(device, inode),
    coalesce(caller, 'an unknown function'), exclusive, waits),
    least(waited / greatest((SELECT to_ns FROM klogger.recording), 1), 1) AS weight
FROM worst;
