-- SPDX-License-Identifier: GPL-2.0-only
-- title: Direct I/O and the locks of files
-- question: How long do writers of one file wait for its lock, and how many of them are there?
-- order: 40
-- events: DIRECT, INODE_LOCK
-- picture: bars x=waited y=file
-- column device: device of the file system
-- column inode: number of the file or directory
-- column what: file or directory
-- column writers [count]: threads that wrote to it directly
-- column requests [count]: direct reads and writes
-- column bytes [bytes]: read and written directly
-- column took [ns]: half of the direct requests took no longer, without the wait for the lock
-- column waits [count]: for the lock
-- column waited [ns, bar]: time of all waits
-- column share [share]: of the time of direct requests and waits
-- column p50 [ns]: half of the waits took no longer
-- column p99 [ns]: 99 of 100 took no longer
-- column exclusive [share]: of the waits, for the lock alone, as writes that append need it
-- column holder: thread that had the lock alone, most often
-- column file: file
-- note: Direct writes within a file share its lock; those that append, or fill holes, do not.
-- note: Waits of buffered writers, and for directories, are listed as well.
-- empty: no direct I/O, and nobody waited for the lock of a file

CREATE TEMP TABLE dio_locks_direct AS
SELECT device, inode, count(DISTINCT pid) FILTER (writes) AS writers, count(*) AS requests,
    least(sum(greatest(result, 0)), 9223372036854775807)::BIGINT AS bytes, sum(took) AS total,
    quantile_disc(took, 0.5) AS took
FROM DIRECT GROUP BY device, inode;
CREATE TEMP TABLE dio_locks_waits AS
SELECT device, inode, bool_or(directory) AS directory, max(time) AS time, count(*) AS waits,
    least(sum(took), 9223372036854775807)::BIGINT AS waited, quantile_disc(took, 0.5) AS p50,
    quantile_disc(took, 0.99) AS p99, avg((wants = 4)::INT) AS exclusive,
    mode(holder ORDER BY holder) FILTER (holder > 0) AS holder
FROM INODE_LOCK GROUP BY device, inode;
CREATE TEMP TABLE dio_locks AS
SELECT device, inode, CASE WHEN directory THEN 'directory' ELSE 'file' END AS what,
    coalesce(writers, 0) AS writers, coalesce(requests, 0) AS requests,
    coalesce(bytes, 0)::BIGINT AS bytes, took, coalesce(waits, 0) AS waits,
    coalesce(waited, 0)::BIGINT AS waited,
    coalesce(waited, 0) / greatest(coalesce(waited, 0) + coalesce(total, 0), 1) AS share, p50, p99,
    exclusive, CASE WHEN holder IS NOT NULL THEN thread(holder, time) END AS holder
FROM dio_locks_direct FULL JOIN dio_locks_waits USING (device, inode);

-- table
SELECT disk(device) AS device, * EXCLUDE (device) FROM dio_locks
ORDER BY waited DESC, requests DESC, device, inode;

-- picture
SELECT format('{} {} ({} writers)', disk(device), inode, writers) AS file, waited FROM dio_locks
ORDER BY waited DESC, requests DESC, device, inode LIMIT 15;

-- finding
WITH worst AS (FROM dio_locks WHERE waits > 0 ORDER BY waited DESC, device, inode LIMIT 1)
SELECT format('Threads waited {} for the lock of {} {} of {}, which has {} direct {}{}.',
        duration(waited), what, inode, disk(device), writers,
        CASE writers WHEN 1 THEN 'writer' ELSE 'writers' END,
        CASE WHEN holder IS NOT NULL THEN format('; {} had it most often', holder) ELSE '' END),
    least(waited / (SELECT greatest(to_ns - from_ns, 1) FROM klogger.recording), 1) AS weight
FROM worst;
