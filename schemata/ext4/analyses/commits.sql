-- SPDX-License-Identifier: GPL-2.0-only
-- title: Commits of journals
-- question: How long do commits take, in which phase, and who asks for them?
-- order: 10
-- events: COMMIT_PHASE, COMMITTED, FSYNC
-- include: _ext4
-- picture: stacked x=ns y=transaction colour=phase
-- combine: sum
-- column device: device of the file system
-- column commits [count]: that ended
-- column asked_for [share, of commits]: of them, by fsync(), sync or for want of space; others are
--     periodic
-- column asked_by [most]: program whose fsync() most of them ended
-- column handles [count, of commits]: per commit
-- column blocks [count, of commits]: changed, per commit
-- column logged [count, of commits]: written to the journal, per commit
-- column p50 [ns, 0.5 of each]: half of the commits took no longer
-- column p99 [ns, 0.99 of each]: 99 of 100 took no longer
-- column max [ns, max]: the longest
-- column locking [share, apart]: of their time; new handles wait for the ones that are open
-- column flushing [share, apart]: data of files are written
-- column logging [share, apart]: blocks are written to the journal, and the commit record
-- column begun [share, apart]: what comes before the lock
-- column busy [share, apart]: of the recorded time in which a commit was under way
-- column transaction: commit
-- column ns [ns]: time in the phase
-- column phase: phase
-- note: The picture has the 20 longest commits.
-- empty: no journal was committed while the log was recorded

CREATE TEMP TABLE commits_whole AS
FROM ext4_commit WHERE end_ns IS NOT NULL AND logging_ns IS NOT NULL;
CREATE TEMP VIEW commits_asked AS
SELECT device, time, pid FROM ext4_sync WHERE waited;

-- table
WITH by_program AS (
    SELECT device, mode(program ORDER BY program) AS asked_by
    FROM klogger.with_program('commits_asked')
    GROUP BY device
)
SELECT disk(device) AS device, count(*) AS commits, avg(requested::INT) AS asked_for,
    any_value(asked_by) AS asked_by, round(avg(handles))::BIGINT AS handles,
    round(avg(blocks))::BIGINT AS blocks, round(avg(logged))::BIGINT AS logged,
    quantile_disc(end_ns - start_ns, 0.5) AS p50, quantile_disc(end_ns - start_ns, 0.99) AS p99,
    max(end_ns - start_ns) AS max,
    sum(locking_ns - start_ns) / greatest(sum(end_ns - start_ns), 1) AS begun,
    sum(flushing_ns - locking_ns) / greatest(sum(end_ns - start_ns), 1) AS locking,
    sum(logging_ns - flushing_ns) / greatest(sum(end_ns - start_ns), 1) AS flushing,
    sum(end_ns - logging_ns) / greatest(sum(end_ns - start_ns), 1) AS logging,
    sum(end_ns - start_ns) / (SELECT greatest(to_ns - from_ns, 1) FROM klogger.recording) AS busy
FROM commits_whole LEFT JOIN by_program USING (device) GROUP BY device
ORDER BY sum(end_ns - start_ns) DESC, device;

-- picture
WITH longest AS (
    FROM commits_whole ORDER BY end_ns - start_ns DESC, start_ns LIMIT 20
), parts AS (
    SELECT device, transaction, start_ns, 1 AS place, 'begun' AS phase,
        locking_ns - start_ns AS ns FROM longest
    UNION ALL SELECT device, transaction, start_ns, 2, 'locking', flushing_ns - locking_ns
    FROM longest
    UNION ALL SELECT device, transaction, start_ns, 3, 'flushing', logging_ns - flushing_ns
    FROM longest
    UNION ALL SELECT device, transaction, start_ns, 4, 'logging', end_ns - logging_ns FROM longest
)
SELECT format('{} of {}', transaction, disk(device)) AS transaction, phase, ns
FROM parts
ORDER BY sum(ns) OVER (PARTITION BY device, transaction, start_ns) DESC, start_ns, device, place;

-- finding
WITH all_of AS (
    SELECT device, count(*) AS n, sum(end_ns - start_ns) AS total,
        quantile_disc(end_ns - start_ns, 0.5) AS p50,
        max({'ns': end_ns - start_ns, 'at': start_ns}) AS worst,
        sum(flushing_ns - locking_ns) AS locking, sum(logging_ns - flushing_ns) AS flushing,
        sum(end_ns - logging_ns) AS logging
    FROM commits_whole GROUP BY device
)
SELECT format('{}: {:,} commits took {} at the median and {} at most; {:.0f} % of the time was {}.',
        disk(device), n, duration(p50), duration(worst.ns),
        100 * greatest(locking, flushing, logging) / greatest(total, 1),
        CASE greatest(locking, flushing, logging) WHEN logging THEN 'logging'
            WHEN flushing THEN 'flushing data' ELSE 'waiting for open handles' END),
    least(total / (SELECT greatest(to_ns - from_ns, 1) FROM klogger.recording), 1) AS weight
FROM all_of ORDER BY weight DESC, device;

-- warning
SELECT format('Left out, because a phase is missing: {:,} {}.', count(*),
    CASE count(*) WHEN 1 THEN 'commit' ELSE 'commits' END)
FROM ext4_commit AS c
WHERE (end_ns IS NULL OR logging_ns IS NULL) AND EXISTS (
    FROM COMMIT_PHASE AS later WHERE later.device = c.device AND later.time > c.start_ns
        AND later.transaction > c.transaction AND later.phase < 5)
HAVING count(*) > 0;

-- histogram
SELECT disk(device) AS device, klogger.histogram_of(end_ns - start_ns) AS each
FROM commits_whole GROUP BY ALL;
