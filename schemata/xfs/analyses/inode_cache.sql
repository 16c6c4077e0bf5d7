-- SPDX-License-Identifier: GPL-2.0-only
-- title: Inodes in memory
-- question: How often are inodes found in memory, and how long do unused ones wait for their end?
-- order: 60
-- events: INODE, INACTIVE
-- include: _xfs
-- picture: bars x=times y=what
-- combine: sum
-- column device: file system
-- column what: found: in memory; missed: read from the disk or new; skipped: just being made or
--     taken away, tried again; recycled: taken back from those that were to be freed; freed: from
--     memory; inactivated: truncated behind its end, or deleted
-- column times [count, bar]: so often
-- column waited [ns, 0.5 of waits]: half waited no longer for it, from the last use
-- column waited_max [ns, max]: the longest wait
-- column took [ns, 0.5 of each]: half took no longer
-- column took_max [ns, max]: the longest
-- note: All but 'inactivated' need --set inodes=true.
-- empty: no inode was looked for (--set inodes=true), and none was inactivated

CREATE TEMP TABLE inode_cache AS
SELECT device, CASE place(how) WHEN 'xfs_iget_hit' THEN 'found' WHEN 'xfs_iget_miss' THEN 'missed'
        WHEN 'xfs_iget_skip' THEN 'skipped' WHEN 'xfs_iget_recycle' THEN 'recycled'
        ELSE 'freed' END AS what, count(*) AS times, NULL::BIGINT AS waited,
    NULL::BIGINT AS waited_max, NULL::BIGINT AS took, NULL::BIGINT AS took_max
FROM INODE GROUP BY ALL
UNION ALL
SELECT device, 'inactivated', count(*), xfs_ns(quantile_disc(waited, 0.5)), xfs_ns(max(waited)),
    xfs_ns(quantile_disc(took, 0.5)), xfs_ns(max(took))
FROM INACTIVE GROUP BY device;

-- table
SELECT disk(device) AS device, what, times, waited, waited_max, took, took_max
FROM inode_cache ORDER BY inode_cache.device, times DESC, what LIMIT 200;

-- picture
SELECT what, xfs_ns(sum(times)) AS times FROM inode_cache GROUP BY what ORDER BY times DESC, what;

-- finding
SELECT format('{:.0f} % of {:,} looks for an inode found it in memory.',
    100.0 * sum(times) FILTER (what IN ('found', 'recycled')) / sum(times), xfs_ns(sum(times)))
FROM inode_cache WHERE what IN ('found', 'missed', 'recycled')
HAVING sum(times) FILTER (what IN ('found', 'recycled')) > 0;

-- histogram
SELECT disk(device) AS device, 'inactivated' AS what,
    klogger.histogram_of(xfs_ns(waited)) AS waits, klogger.histogram_of(xfs_ns(took)) AS each
FROM INACTIVE GROUP BY ALL;
