-- SPDX-License-Identifier: GPL-2.0-only
-- title: Who dirties an idle file system
-- question: Which programs make a file system dirty that nothing had changed for a second or more?
-- order: 70
-- events: DIRTY_INODE, DIRTY_PAGES, DIRTY_BUFFER
-- include: _writeback
-- include: _idle
-- picture: bars x=times y=culprit
-- column program: program
-- column device: file system
-- column file: what it changed first
-- column how: what of the inode
-- column times [count, bar]: that this ended a second or more without any change
-- column of_all [share]: of all such times of the file system
-- column idle [ns]: without any change before, half of the times no longer
-- column culprit: program and file
-- note: If only reads were done, it is access times that are written: mount with noatime, relatime
--     or lazytime. The first change of a file system within the log is left out.
-- empty: no file system was idle for a second and then changed

CREATE TEMP VIEW idle_first AS
SELECT i.time, tid AS pid, i.device, i.inode, flags, after, coalesce(g.time, -1) AS life
FROM (
    SELECT DISTINCT ON (device, time) device, time, after, tid, inode, flags
    FROM idle_row JOIN idle_change USING (device, time) WHERE after >= 1000000000
    ORDER BY device, time, tid, inode
) AS i ASOF LEFT JOIN writeback_gone AS g
    ON g.device = i.device AND g.inode = i.inode AND i.time >= g.time;
CREATE TEMP TABLE idle_dirtiers AS
SELECT program, device, inode, life, inode_dirt(bit_or(flags)::UTINYINT) AS how, count(*) AS times,
    quantile_disc(after, 0.5) AS idle
FROM with_program('idle_first') GROUP BY program, device, inode, life;

-- table
SELECT program, disk(device) AS device, writeback_name(device, inode, path) AS file, how, times,
    times / sum(times) OVER (PARTITION BY device) AS of_all, idle
FROM idle_dirtiers LEFT JOIN writeback_file USING (device, inode, life)
ORDER BY times DESC, program, file;

-- picture
SELECT format('{}: {}', program, writeback_name(device, inode, path)) AS culprit, times
FROM idle_dirtiers LEFT JOIN writeback_file USING (device, inode, life)
ORDER BY times DESC, culprit LIMIT 15;

-- finding
SELECT format('{} made {} dirty {:,} times after a second or more without any change, {:.0f} % of '
    'such times.', program, disk(device), times, 100 * share)
FROM (
    SELECT program, device, sum(times)::BIGINT AS times,
        sum(times) / sum(sum(times)) OVER (PARTITION BY device) AS share
    FROM idle_dirtiers GROUP BY program, device
) ORDER BY times DESC, program, device LIMIT 1;
