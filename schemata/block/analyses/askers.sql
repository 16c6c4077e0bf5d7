-- SPDX-License-Identifier: GPL-2.0-only
-- title: Who asks
-- question: Which programs asked for the requests, for how many bytes, and how long did they take?
-- order: 30
-- events: RQ_DONE, BIO_DONE
-- include: _block
-- picture: stacked x=bytes y=shown colour=kind
-- combine: sum
-- column program: name of the thread that asked, or `nobody`: flushes that the block layer adds
-- column role: what a thread of the kernel asks for: on behalf of whom
-- column device: the whole disk
-- column requests [count]: that it asked for
-- column bytes [bytes, bar]: bytes that it asked for
-- column of_all [share, apart]: of the bytes of the device
-- column reads [count]: so many of them
-- column writes [count]: so many of them
-- column metadata [share, of requests]: marked as metadata, or of the device's own file
-- column files [count, apart]: different files whose pages they were about
-- column p50 [ns, 0.5 of each]: from the bio to its completion, half took no longer
-- column p99 [ns, 0.99 of each]: 99 of 100 took no longer
-- column shown: program
-- column kind: kind of request
-- note: A request is asked for by the thread that made its first bio; what others added to it
--     counts as its own.
-- note: What programs write through the page cache is asked for by a thread of the kernel, later.
--     Record `writeback` as well to know who wrote the pages.
-- empty: no request was completed while the log was recorded

-- `kernel`: the thread is one of the kernel; NULL: not known. A program may have any name.
CREATE TEMP MACRO askers_role(program, kernel) AS CASE
    WHEN NOT kernel THEN ''
    WHEN starts_with(program, 'kworker') THEN 'page cache, and work put off'
    WHEN starts_with(program, 'jbd2/') THEN 'journal of ext4'
    WHEN starts_with(program, 'xfsaild') THEN 'metadata of XFS, behind its log'
    WHEN starts_with(program, 'btrfs') THEN 'transactions of btrfs'
    WHEN starts_with(program, 'f2fs_') THEN 'f2fs'
    WHEN starts_with(program, 'kswapd') THEN 'reclaim, swap'
    WHEN starts_with(program, 'loop') THEN 'a loop device'
    WHEN regexp_matches(program, '^(dm|md|kdmflush)') THEN 'another block device'
    ELSE '' END;
CREATE TEMP VIEW askers_seen AS
SELECT pid, from_ns AS time, device, kind, how, bytes, inode, file_system, kernel,
    queued + took AS ns
FROM block_request WHERE took > 0
UNION ALL
SELECT pid, from_ns, device, kind, how, bytes, inode, file_system, kernel, took FROM block_bio;
CREATE TEMP VIEW askers AS
SELECT CASE WHEN pid = 0 THEN 'nobody' ELSE program END AS program, device, kind, how, bytes,
    inode, file_system, kernel, ns
FROM klogger.with_program('askers_seen');
-- What the sections add up, made once of all requests; and what cannot be added.
CREATE TEMP TABLE askers_part AS
SELECT program, kernel, device, kind, file_system, inode, count(*) AS requests,
    sum(bytes)::BIGINT AS bytes, count(*) FILTER (how & 130 <> 0) AS metadata, sum(ns) AS ns
FROM askers GROUP BY ALL;
CREATE TEMP TABLE askers_by AS
SELECT added.*, p FROM (
    SELECT program, kernel, device, sum(requests)::BIGINT AS requests, sum(bytes)::BIGINT AS bytes,
        coalesce(sum(requests) FILTER (kind = 0), 0)::BIGINT AS reads,
        coalesce(sum(requests) FILTER (kind = 1), 0)::BIGINT AS writes,
        sum(metadata) / sum(requests) AS metadata, sum(ns) AS ns,
        count(DISTINCT {'device': file_system, 'inode': inode}) FILTER (inode > 0) AS files
    FROM askers_part GROUP BY program, kernel, device
) AS added JOIN (
    SELECT program, kernel, device, quantile_disc(ns, [0.5, 0.99]) AS p
    FROM askers GROUP BY program, kernel, device
) AS ordered ON added.program = ordered.program AND added.device = ordered.device
    AND added.kernel IS NOT DISTINCT FROM ordered.kernel;

-- table
SELECT program, askers_role(program, kernel) AS role, disk(device) AS device, requests, bytes,
    bytes / greatest(sum(bytes) OVER (PARTITION BY askers_by.device), 1) AS of_all, reads, writes,
    metadata, files, p[1] AS p50, p[2] AS p99
FROM askers_by
ORDER BY bytes DESC, requests DESC, program, kernel;

-- picture
WITH ranked AS (
    SELECT program, row_number() OVER (ORDER BY sum(bytes) DESC, program) AS rank
    FROM askers_part GROUP BY program
)
SELECT CASE WHEN rank <= 12 THEN program ELSE 'other' END AS shown, request_kind(kind) AS kind,
    sum(bytes)::BIGINT AS bytes
FROM askers_part JOIN ranked USING (program) GROUP BY ALL HAVING sum(bytes) > 0
ORDER BY max(least(rank, 13)), kind;

-- finding
SELECT format('{} asked for {:.0f} % of the bytes of {}: {:,} requests{}.', program,
        100.0 * bytes / all_bytes, disk(device), requests,
        CASE WHEN askers_role(program, kernel) = '' THEN ''
            ELSE format(', which is the work of the kernel ({})',
                askers_role(program, kernel)) END),
    least(ns / greatest((SELECT to_ns FROM klogger.recording), 1), 1) * bytes / all_bytes AS weight
FROM (
    SELECT *, sum(bytes) OVER (PARTITION BY device) AS all_bytes FROM askers_by
)
WHERE all_bytes > 0 ORDER BY bytes DESC, program LIMIT 1;

-- histogram
SELECT program, disk(device) AS device, klogger.histogram_of(ns) AS each
FROM askers GROUP BY ALL;
