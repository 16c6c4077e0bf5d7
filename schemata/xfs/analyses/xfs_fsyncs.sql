-- SPDX-License-Identifier: GPL-2.0-only
-- title: fsync on XFS
-- question: What does each program's fsync wait for: its data, the log, the disk's cache?
-- order: 15
-- events: XFS_FSYNCED, SLEPT
-- include: _xfs
-- picture: stacked x=ns y=program colour=part
-- combine: sum
-- column program: program
-- column fsyncs [count]: calls that ended, with writes to files opened for O_SYNC
-- column p50 [ns, 0.5 of each]: half of them took no longer
-- column p99 [ns, 0.99 of each]: 99 of 100 took no longer
-- column max [ns, less, max]: the longest
-- column took [ns, bar]: all of them together
-- column data [ns]: of it, asleep until the file's data were written
-- column checkpoint [ns]: asleep until the changes in memory were formatted for the log
-- column log [ns]: asleep until the log was on the disk
-- column flush [ns]: asleep until the disk had emptied its cache
-- column other [ns]: asleep elsewhere
-- column awake [ns]: not asleep: running, or waiting for a CPU
-- column failed [count]: that returned an error
-- column part: of the time
-- column ns [ns]: time in fsync
-- note: Where a thread slept is read off its kernel stack. A sleep without one is 'other'.
-- empty: no fsync of a file on XFS ended

CREATE TEMP TABLE xfs_fsyncs AS
SELECT time, tid AS pid, device, inode, xfs_ns(took) AS ns, time - xfs_ns(took) AS from_ns, result,
    xfs_ns(asleep) AS asleep
FROM XFS_FSYNCED;
CREATE TEMP TABLE xfs_fsyncs_slept AS
SELECT f.pid, f.time, s.place, s.ns
FROM (FROM xfs_slept WHERE why & 1 = 1) AS s
ASOF JOIN xfs_fsyncs AS f ON f.pid = s.pid AND f.time >= s.to_ns;
CREATE TEMP TABLE xfs_fsyncs_by AS
WITH slept AS (
    SELECT program, xfs_ns(coalesce(sum(ns) FILTER (place = 'data'), 0)) AS data,
        xfs_ns(coalesce(sum(ns) FILTER (starts_with(place, 'checkpoint')), 0)) AS checkpoint,
        xfs_ns(coalesce(sum(ns) FILTER (place = 'log'), 0)) AS log,
        xfs_ns(coalesce(sum(ns) FILTER (place = 'flush'), 0)) AS flush, xfs_ns(sum(ns)) AS slept
    FROM with_program('xfs_fsyncs_slept') GROUP BY ALL
), calls AS (
    SELECT program, count(*) AS fsyncs, quantile_disc(ns, [0.5, 0.99]) AS p, max(ns) AS max,
        xfs_ns(sum(ns)) AS took, count(*) FILTER (result < 0) AS failed,
        xfs_ns(sum(asleep)) AS asleep
    FROM with_program('xfs_fsyncs') GROUP BY ALL
)
SELECT program, fsyncs, p, max, took, coalesce(data, 0) AS data,
    coalesce(checkpoint, 0) AS checkpoint, coalesce(log, 0) AS log, coalesce(flush, 0) AS flush,
    greatest(asleep - coalesce(data + checkpoint + log + flush, 0), 0) AS other,
    greatest(took - asleep, 0) AS awake, failed
FROM calls LEFT JOIN slept USING (program);

-- table
SELECT program, fsyncs, p[1] AS p50, p[2] AS p99, max, took, data, checkpoint, log, flush, other,
    awake, failed
FROM xfs_fsyncs_by ORDER BY took DESC, program LIMIT 200;

-- picture
WITH top AS (FROM xfs_fsyncs_by ORDER BY took DESC, program LIMIT 15)
SELECT program, part, ns FROM (
    UNPIVOT (SELECT program, took AS all_took, data, checkpoint, log, flush, other, awake FROM top)
    ON data, checkpoint, log, flush, other, awake INTO NAME part VALUE ns)
ORDER BY all_took DESC, program, ns DESC;

-- finding
WITH worst AS (FROM xfs_fsyncs_by ORDER BY took DESC, program LIMIT 1), part AS (
    SELECT part, ns FROM (UNPIVOT (SELECT data, checkpoint, log, flush, other, awake FROM worst)
        ON COLUMNS(*) INTO NAME part VALUE ns) ORDER BY ns DESC, part LIMIT 1)
SELECT format('{} spent {} in {:,} fsyncs, the longest {}; most of it, {:.0f} %, was {}.', program,
    duration(took), fsyncs, duration(max), 100.0 * ns / greatest(took, 1),
    CASE part WHEN 'data' THEN 'waiting for its own data' WHEN 'checkpoint'
        THEN 'waiting for the checkpoint to be formatted' WHEN 'log' THEN 'waiting for the log'
        WHEN 'flush' THEN 'waiting for the cache of the disk' WHEN 'other' THEN 'asleep elsewhere'
        ELSE 'not asleep' END),
    least(took / greatest((SELECT to_ns FROM klogger.recording), 1), 1) AS weight
FROM worst, part;

-- samples
SELECT program, time, ns FROM with_program('xfs_fsyncs');

-- histogram
SELECT program, klogger.histogram_of(ns) AS each
FROM klogger.with_program('xfs_fsyncs') GROUP BY program;
