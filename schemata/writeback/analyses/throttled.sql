-- SPDX-License-Identifier: GPL-2.0-only
-- title: Who waits for writing back
-- question: Who was made to wait because too much is dirty, or for a page under writeback?
-- order: 30
-- events: DIRTY_PAUSE, WB_WAIT, WB_RESUMED
-- include: _writeback
-- picture: bars x=waited y=what
-- combine: sum
-- column program: program
-- column why: paused by the limit that was nearer: of the machine or of the disk; or a page that is
--     being written
-- column device: disk of a pause; file system of a page
-- column waits [count]: times that a thread slept
-- column waited [ns, bar]: time in them, of all threads
-- column of_time [share, apart]: of the recorded time; more than 100 % if several threads waited
--     at once
-- column p50 [ns, 0.5 of each]: half of the waits took no longer
-- column max [ns, max]: the longest
-- column fill [share, of waits]: dirty pages at a pause, of their limit, on average
-- column rate [bytes, of waits]: that a thread could dirty in a second then, on average
-- column what: program, reason and device
-- note: The time is from the decision to wait until the thread runs again, so the time that it
--     waits for a CPU is in it. A wait that had not ended is not counted.
-- note: Pages under writeback are waited for by fsync() and the like, and by who changes them if
--     the disk needs stable pages.
-- empty: nobody waited; with much memory the limits are far away (vm.dirty_ratio)

CREATE TEMP TABLE throttled_pause AS
SELECT tid, time, device, disk_dirty / greatest(disk_limit, 1) AS of_disk,
    dirty / greatest(threshold, 1) AS of_machine, least(rate, 2251799813685247) AS rate
FROM DIRTY_PAUSE WHERE pause > 0;
CREATE TEMP TABLE throttled_wait AS
SELECT r.time, r.pid, r.device, writeback_big(r.took) AS ns, r.kind,
    CASE WHEN r.kind = 2 THEN 'page under writeback'
        WHEN p.of_disk >= p.of_machine THEN 'limit of the disk'
        ELSE 'limit of the machine' END AS why,
    greatest(p.of_disk, p.of_machine) AS fill, p.rate
FROM WB_RESUMED AS r ASOF LEFT JOIN throttled_pause AS p
    ON r.kind = 1 AND r.pid = p.tid AND r.time >= p.time;
CREATE TEMP TABLE throttled AS
SELECT program, why, disk(device) AS device, count(*) AS waits, writeback_big(sum(ns)) AS waited,
    sum(ns) / (SELECT greatest(to_ns, 1) FROM klogger.recording) AS of_time,
    quantile_disc(ns, 0.5) AS p50, max(ns) AS max, avg(fill) AS fill,
    (avg(rate) * writeback_page())::BIGINT AS rate
FROM with_program('throttled_wait') GROUP BY ALL;

-- table
FROM throttled ORDER BY waited DESC, program, why;

-- picture
SELECT format('{}: {}, {}', program, why, device) AS what, waited FROM throttled
ORDER BY waited DESC, what LIMIT 20;

-- finding
SELECT format('{} waited {} for writing back, {:,} {}: {}, {}.', program, duration(waited), waits,
    CASE waits WHEN 1 THEN 'time' ELSE 'times' END, why, device),
    least(of_time, 1) AS weight
FROM throttled ORDER BY waited DESC, program, why LIMIT 1;

-- histogram
SELECT program, why, disk(device) AS device, klogger.histogram_of(ns) AS each
FROM klogger.with_program('throttled_wait') GROUP BY ALL;
