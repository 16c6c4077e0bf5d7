-- SPDX-License-Identifier: GPL-2.0-only
-- title: fsync() and the commits behind it
-- question: How long do fsync() and fdatasync() take, and for which part of a commit do they wait?
-- order: 20
-- events: FSYNC, COMMIT_PHASE
-- include: _ext4
-- picture: stacked x=ns y=who colour=part
-- combine: sum
-- column program: program
-- column device: device of the file system
-- column calls [count]: of fsync() and fdatasync()
-- column commits [count]: of them waited for a commit
-- column p50 [ns, less, 0.5 of each]: half of the calls took no longer
-- column p99 [ns, less, 0.99 of each]: 99 of 100 took no longer
-- column max [ns, less, max]: the longest
-- column fluctuation [apart]: p99.9 divided by p50
-- column before [ns, bar, of calls]: per call, before its commit began: data of the file, earlier
--     commits
-- column commit [ns, of calls]: per call, in its commit
-- column failed [count]: ended with an error
-- column who: program and device
-- column part: part of the time
-- column ns [ns]: mean time of a call
-- note: The commit is that of the file's latest change. Time of calls without one is in `before`.
-- note: What a call does before is told apart by the schemata `writeback` and `block`.
-- empty: no file of ext4 was synchronised while the log was recorded

CREATE TEMP TABLE fsyncs AS
SELECT program, device, ns, result, waited, pid, time,
    CASE WHEN waited THEN greatest(coalesce(start_ns, from_ns), from_ns) - from_ns ELSE ns END
        AS before,
    CASE WHEN waited THEN greatest(least(flushing_ns, to_ns) - greatest(start_ns, from_ns), 0)
        ELSE 0 END AS locking,
    CASE WHEN waited THEN greatest(least(logging_ns, to_ns) - greatest(flushing_ns, from_ns), 0)
        ELSE 0 END AS flushing,
    CASE WHEN waited THEN greatest(least(end_ns, to_ns) - greatest(logging_ns, from_ns), 0)
        ELSE 0 END AS logging
FROM klogger.with_program('ext4_sync');

-- table
SELECT program, disk(device) AS device, count(*) AS calls, count(*) FILTER (waited) AS commits,
    quantile_disc(ns, 0.5) AS p50, quantile_disc(ns, 0.99) AS p99, max(ns) AS max,
    round(quantile_disc(ns, 0.999) / greatest(quantile_disc(ns, 0.5), 1), 1) AS fluctuation,
    round(avg(before))::BIGINT AS before, round(avg(ns - before))::BIGINT AS commit,
    count(*) FILTER (result < 0) AS failed
FROM fsyncs GROUP BY program, device ORDER BY sum(ns) DESC, program, device;

-- picture
WITH parts AS (
    SELECT program, device, 1 AS place, 'before the commit' AS part, before AS part_ns FROM fsyncs
    UNION ALL SELECT program, device, 2, 'locking', locking FROM fsyncs
    UNION ALL SELECT program, device, 3, 'flushing', flushing FROM fsyncs
    UNION ALL SELECT program, device, 4, 'logging', logging FROM fsyncs
    UNION ALL SELECT program, device, 5, 'after it', ns - before - locking - flushing - logging
    FROM fsyncs
), most AS (
    SELECT program, device, sum(ns) AS total FROM fsyncs GROUP BY ALL ORDER BY total DESC LIMIT 12
)
SELECT format('{} {}', program, disk(device)) AS who, part, round(avg(part_ns))::BIGINT AS ns
FROM parts JOIN most USING (program, device) GROUP BY program, device, part, place, total
ORDER BY total DESC, who, place;

-- finding
WITH all_of AS (
    SELECT program, count(*) AS n, sum(ns) AS total, sum(ns - before) AS commit,
        quantile_disc(ns, 0.5) AS p50, quantile_disc(ns, 0.99) AS p99
    FROM fsyncs GROUP BY program ORDER BY total DESC, program LIMIT 1
)
SELECT format('{} called fsync() {:,} times, {} at the median, {} in 1 of 100; {:.0f} % of the time'
        || ' was in commits.', program, n, duration(p50), duration(p99),
        100 * commit / greatest(total, 1)),
    least(total / (SELECT greatest(to_ns - from_ns, 1) FROM klogger.recording), 1) AS weight
FROM all_of;

-- samples
SELECT program, time, ns AS fsync FROM fsyncs;

-- histogram
SELECT program, disk(device) AS device, klogger.histogram_of(ns) AS each
FROM fsyncs GROUP BY ALL;
