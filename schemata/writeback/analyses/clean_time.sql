-- SPDX-License-Identifier: GPL-2.0-only
-- title: A file system with a dirty bit
-- question: How much of the time would a file system be marked clean, at which cost?
-- order: 60
-- events: DIRTY_INODE, DIRTY_PAGES, DIRTY_BUFFER
-- include: _writeback
-- include: _idle
-- picture: cdf x=idle y=clean colour=device scale=log
-- column device: file system
-- column idle [ns]: it is synced and marked clean after nothing made it dirty for so long
-- column clean [share, bar]: part of the recorded time for which it would be marked clean; after a
--     crash in the other part it is checked
-- column cycles [count]: times that it would become dirty and be marked
-- column superblocks [count]: writes of the superblock for that, two in each cycle
-- column flushes [count]: of the disk's cache, two for each such write
-- column longest [ns]: the longest time in which it would be dirty
-- note: A simulation of the dirty bit of Henson and others (2006): dirty at the first change; clean
--     when for the time of `idle` nothing was changed, and then a sync was complete, of the mean
--     duration of the calls in the log that synced this file system or all; 0 if there were none.
-- note: Changes of times only are left out (lazytime), and what flushers and the journal change. A
--     change within 50 ms of the same kind, by the same thread, is not seen (parameter `again`).
-- note: Of XFS and btrfs the log has pages and inodes only; of ext4 also what goes to the journal.
--     In a recording of a command, others may have changed the file system.
-- empty: nothing made a file system dirty

CREATE TEMP TABLE clean_time_idle AS
SELECT unnest([100, 500, 1000, 2000, 5000, 30000]) * 1000000::BIGINT AS idle;
CREATE TEMP TABLE clean_time_sync AS
SELECT d.device, least(coalesce(avg(s.took), 0), 9e18)::BIGINT AS sync
FROM (SELECT DISTINCT device FROM idle_row) AS d
LEFT JOIN SYNC_CALL AS s ON s.result >= 0 AND (s.device = d.device OR s.device = 0)
GROUP BY d.device;
-- A cycle begins with a row after which nothing came for long enough, and its length is up to the
-- last row before the next one, the idle time and the sync.
CREATE TEMP TABLE clean_time AS
WITH cycle AS (
    SELECT r.device, i.idle, s.sync, r.time AS from_ns,
        lead(r.time - r.after) OVER (PARTITION BY r.device, i.idle ORDER BY r.time) AS last_ns
    FROM idle_row AS r JOIN clean_time_sync AS s USING (device), clean_time_idle AS i
    WHERE r.after IS NULL OR r.after > i.idle + s.sync
), whole AS (
    SELECT device, idle, from_ns,
        least(coalesce(last_ns, (SELECT max(last) FROM idle_row AS r WHERE r.device = c.device))
            + idle + sync, (SELECT to_ns FROM klogger.recording)) AS to_ns
    FROM cycle AS c
)
SELECT device, idle, 1 - sum(to_ns - from_ns) / (SELECT greatest(to_ns, 1) FROM klogger.recording)
    AS clean, count(*) AS cycles, max(to_ns - from_ns) AS longest
FROM whole GROUP BY device, idle;

-- table
SELECT disk(device) AS device, idle, clean, cycles, 2 * cycles AS superblocks,
    4 * cycles AS flushes, longest
FROM clean_time ORDER BY device, idle;

-- picture
SELECT idle, clean, disk(device) AS device FROM clean_time ORDER BY device, idle;

-- finding
SELECT format('With a dirty bit and an idle time of 1 s, {} would be clean for {:.1f} % of the '
    'time, for {:,} more writes of the superblock.', disk(device), 100 * clean, 2 * cycles)
FROM clean_time WHERE idle = 1000000000 ORDER BY cycles DESC, device LIMIT 1;

-- warning
SELECT format('The log is {} long: of longer idle times it cannot say much.',
    duration(to_ns)) FROM klogger.recording WHERE to_ns < 30000000000;
