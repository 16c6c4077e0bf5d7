-- SPDX-License-Identifier: GPL-2.0-only
-- title: Dirty inodes
-- question: How many inodes of each file system are dirty at once, and for how long?
-- order: 50
-- events: DIRTY_INODE, WB_INODE, DIRTY_GONE
-- include: _writeback
-- picture: histogram x=from_ns x2=to_ns y=inodes colour=device
-- column device: file system
-- column dirtied [count]: times that an inode became dirty
-- column most [count, bar]: most that were dirty at the same time
-- column mean [count]: dirty at a time, on average over the recording
-- column p50 [ns]: half of them were dirty for no longer
-- column p99 [ns]: 99 of 100
-- column max [ns]: the longest
-- column still [count]: were dirty when the log ended
-- column from_ns [ns]: time
-- column to_ns [ns]: end of the bin
-- column inodes [count]: dirty at the same time, at most in this bin
-- note: An inode is dirty from the first change until its pages and fields were written. fsync()
--     writes the data, but the inode counts as dirty until a flusher has seen it. What is only in
--     the journal is not dirty in this sense, nor an inode of which only times changed
--     (lazytime). Deletion ends it too; of XFS and btrfs it is not seen.
-- empty: no inode became dirty by a thread in scope

CREATE TEMP TABLE dirty_set_step AS
SELECT device, inode, time, 1 AS step FROM DIRTY_INODE WHERE before & 7 = 0 AND flags & 7 > 0
UNION ALL SELECT device, inode, time, 0 FROM WB_INODE WHERE remains & 7 = 0
UNION ALL SELECT device, inode, time, 0 FROM DIRTY_GONE;
-- From the first mark after it was clean to the next time that it is.
CREATE TEMP TABLE dirty_set AS
WITH run AS (
    SELECT *, count(*) FILTER (step = 0) OVER (PARTITION BY device, inode ORDER BY time
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS number
    FROM dirty_set_step
)
SELECT NULL::INTEGER AS place, device, inode, min(time) FILTER (step = 1) AS from_ns,
    max(time) FILTER (step = 0) AS to_ns
FROM run GROUP BY device, inode, number HAVING count(*) FILTER (step = 1) > 0;
CREATE TEMP TABLE dirty_set_whole AS
FROM klogger.broken('dirty_set', ['DIRTY_INODE', 'WB_INODE', 'DIRTY_GONE']) WHERE NOT broken;
CREATE TEMP TABLE dirty_set_count AS
SELECT device, time, sum(step) OVER (PARTITION BY device ORDER BY time, step DESC
    ROWS UNBOUNDED PRECEDING) AS inodes
FROM (
    SELECT device, from_ns AS time, 1 AS step FROM dirty_set_whole
    UNION ALL SELECT device, to_ns, -1 FROM dirty_set_whole WHERE to_ns IS NOT NULL
);

-- table
WITH e AS (SELECT greatest(to_ns, 1) AS ns FROM klogger.recording)
SELECT disk(device) AS device, count(*) AS dirtied,
    any_value(most) AS most, sum(coalesce(to_ns, e.ns) - from_ns) / any_value(e.ns) AS mean,
    quantile_disc(to_ns - from_ns, 0.5) AS p50, quantile_disc(to_ns - from_ns, 0.99) AS p99,
    max(to_ns - from_ns) AS max, count(*) FILTER (to_ns IS NULL) AS still
FROM dirty_set_whole JOIN (
    SELECT device, max(inodes)::BIGINT AS most FROM dirty_set_count GROUP BY device
) USING (device), e GROUP BY ALL ORDER BY dirtied DESC, device;

-- picture
WITH bin AS (
    SELECT (number * to_ns / 60)::BIGINT AS from_ns, ((number + 1) * to_ns / 60)::BIGINT AS to_ns
    FROM klogger.recording, range(60) AS r(number)
), top AS (
    SELECT device FROM dirty_set_count GROUP BY device ORDER BY max(inodes) DESC, device LIMIT 5
), seen AS (
    SELECT t.device, b.from_ns, b.to_ns, c.inodes FROM top AS t, bin AS b
    JOIN dirty_set_count AS c ON c.time >= b.from_ns AND c.time < b.to_ns WHERE c.device = t.device
    UNION ALL SELECT t.device, b.from_ns, b.to_ns, c.inodes
    FROM (SELECT * FROM top, bin) AS b JOIN top AS t USING (device)
    ASOF JOIN dirty_set_count AS c ON c.device = b.device AND b.from_ns >= c.time
)
SELECT from_ns, to_ns, max(inodes)::BIGINT AS inodes, disk(device) AS device FROM seen
GROUP BY ALL ORDER BY device, from_ns;

-- finding
SELECT format('At most {:,} inodes of {} were dirty at once; of {:,} that became dirty, half were '
    'clean again after {} or less.', (SELECT max(inodes)::BIGINT FROM dirty_set_count AS c
        WHERE c.device = w.device), disk(device), count(*),
    duration(quantile_disc(to_ns - from_ns, 0.5)))
FROM dirty_set_whole AS w GROUP BY device HAVING count(to_ns) > 0
ORDER BY count(*) DESC, device LIMIT 1;

-- warning
SELECT format('Left out, because events are missing in between: {:,} {}.', count(*),
    CASE count(*) WHEN 1 THEN 'time' ELSE 'times' END || ' that an inode was dirty')
FROM klogger.broken('dirty_set', ['DIRTY_INODE', 'WB_INODE', 'DIRTY_GONE'])
WHERE broken AND to_ns IS NOT NULL
HAVING count(*) > 0;
