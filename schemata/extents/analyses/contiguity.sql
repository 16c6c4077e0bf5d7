-- SPDX-License-Identifier: GPL-2.0-only
-- title: Contiguity
-- question: How contiguous are files, by the number of files that grew at the same time?
-- order: 30
-- events: EXTENT, GONE
-- include: _extents
-- picture: bars x=jumps y=shown
-- column fs: file system
-- column device: device
-- column writers [count]: files that grew at the same time, with this one
-- column files [count]: so many files
-- column bytes [bytes]: of all of them
-- column fragments: mean fragments of a file
-- column mean [bytes]: mean length of a fragment
-- column sequential [share]: of the steps from one 4 KiB block of a file to the next, those to the
--   next block of the disk
-- column jumps: of 1,000 such steps, those to another place
-- column shown: file system, and files that grew at the same time
-- note: A file grows from the first to the last time that it gets new space, which with delayed
--   allocation is when it is written back. Files that grew in one go are alone.
-- empty: no regular file got new space

CREATE TEMP TABLE contiguity AS
WITH gone AS (
    -- The number of a deleted file may be that of a new one.
    SELECT device, inode, max(time) AS last FROM GONE GROUP BY device, inode
), grown AS (
    SELECT c.device, c.inode, min(time) AS began, max(time) AS ended
    FROM extents_change_of_part AS c LEFT JOIN gone AS g USING (device, inode)
    WHERE change IN ('new', 'elsewhere') AND coalesce(time > last, true)
    GROUP BY c.device, c.inode
), middle AS (
    SELECT *, began + (ended - began) // 2 AS half FROM grown
), begun AS (
    SELECT device, began AS time, count(*) OVER (PARTITION BY device ORDER BY began) AS many
    FROM grown
), over AS (
    SELECT device, ended AS time, count(*) OVER (PARTITION BY device ORDER BY ended) AS many
    FROM grown
), counted AS (
    SELECT m.device, m.inode, b.many - coalesce(o.many, 0) AS writers
    FROM middle AS m ASOF JOIN begun AS b ON b.device = m.device AND b.time <= m.half
    ASOF LEFT JOIN over AS o ON o.device = m.device AND o.time < m.half
)
SELECT l.device, l.fs, c.writers, count(*) AS files, sum(l.bytes) AS bytes,
    avg(l.fragments) AS fragments, (sum(l.bytes) // sum(l.fragments)) AS mean,
    sum(greatest(l.bytes // 4096 - 1, 0)) AS steps, sum(l.fragments - 1) AS jumped
FROM extents_last AS l JOIN counted AS c USING (device, inode) GROUP BY ALL;

-- table
SELECT extent_fs(fs) AS fs, disk(device) AS device, writers, files, bytes,
    round(fragments, 2) AS fragments, mean,
    CASE WHEN steps > 0 THEN 1 - jumped / steps END AS sequential,
    CASE WHEN steps > 0 THEN round(1000 * jumped / steps, 2) END AS jumps,
    format('{} {}, {} at a time', extent_fs(fs), disk(device), writers) AS shown
FROM contiguity ORDER BY device, writers;

-- finding
SELECT format('{} on {}: {:.1f} fragments a file where {} files grew at the same time, {:.1f} '
        || 'where {} did.', extent_fs(any_value(fs)), disk(device),
    arg_min(fragments, writers), min(writers), arg_max(fragments, writers), max(writers))
FROM contiguity GROUP BY device HAVING max(writers) > min(writers) ORDER BY device;
