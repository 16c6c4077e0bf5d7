-- SPDX-License-Identifier: GPL-2.0-only
-- title: Forces of the log
-- question: Who has the log written at once, for what, and how long do they sleep for it?
-- order: 20
-- events: FORCE, SLEPT, LOG_WRITE, LOG_WRITTEN, CIL_WAIT
-- include: _xfs
-- picture: stacked x=ns y=program colour=waits_for
-- combine: sum
-- column program: program
-- column caller: function that asked for it
-- column forces [count]: so often
-- column fsyncs [count]: of them within fsync or the like
-- column slept [ns, bar, less]: time asleep in them
-- column checkpoint [ns]: of it, until the changes in memory were formatted for the log
-- column log [ns]: of it, until pieces of the log were on the disk
-- column max [ns, max]: longest sleep
-- column waits_for: what it slept for
-- column ns [ns]: time asleep
-- note: A force that finds all of it written does not sleep. One that does not wait (the kernel's
--     own, every 30 s) may sleep for the checkpoint only.
-- note: Where a thread slept is read off its kernel stack; sleeps elsewhere are not counted here.
-- empty: nobody asked for the log to be written

CREATE TEMP TABLE log_forces_slept AS
SELECT f.pid, f.time, f.caller, s.ns, s.place
FROM (FROM xfs_slept WHERE place IN ('log', 'checkpoint')) AS s
ASOF JOIN xfs_force AS f ON f.pid = s.pid AND f.time <= s.from_ns + 1000000;
CREATE TEMP TABLE log_forces AS
WITH slept AS (
    SELECT program, caller, xfs_ns(sum(ns)) AS slept,
        xfs_ns(coalesce(sum(ns) FILTER (place = 'checkpoint'), 0)) AS checkpoint,
        xfs_ns(coalesce(sum(ns) FILTER (place = 'log'), 0)) AS log, max(ns) AS max
    FROM with_program('log_forces_slept') GROUP BY ALL
), asked AS (
    SELECT program, caller, count(*) AS forces, count(*) FILTER (inode > 0) AS fsyncs
    FROM with_program('xfs_force') GROUP BY ALL
)
SELECT program, caller, forces, fsyncs, coalesce(slept, 0) AS slept,
    coalesce(checkpoint, 0) AS checkpoint, coalesce(log, 0) AS log, max
FROM asked LEFT JOIN slept USING (program, caller);

-- table
FROM log_forces ORDER BY slept DESC, forces DESC, program, caller LIMIT 200;

-- picture
WITH top AS (SELECT program, sum(slept) AS slept, sum(checkpoint) AS checkpoint, sum(log) AS log
             FROM log_forces GROUP BY 1 HAVING sum(slept) > 0 ORDER BY 2 DESC, 1 LIMIT 15)
SELECT program, waits_for, ns FROM (
    SELECT program, slept, 'checkpoint' AS waits_for, checkpoint::BIGINT AS ns FROM top
    UNION ALL SELECT program, slept, 'log', log::BIGINT FROM top)
ORDER BY slept DESC, program, waits_for;

-- finding
WITH worst AS (FROM log_forces WHERE slept > 0 ORDER BY slept DESC, program LIMIT 1)
SELECT format('{:,} forces of the log made threads sleep {}; {} of it {} in {}. {:,} pieces were'
    ' written, half of them in {} or less.',
    (SELECT xfs_ns(sum(forces)) FROM log_forces),
    duration((SELECT xfs_ns(sum(slept)) FROM log_forces)), duration(slept), program, caller,
    (SELECT count(*) FROM LOG_WRITE),
    coalesce(duration((SELECT xfs_ns(quantile_disc(took, 0.5)) FROM LOG_WRITTEN)), 'unknown time')),
    least(slept / greatest((SELECT to_ns FROM klogger.recording), 1), 1) AS weight
FROM worst;
