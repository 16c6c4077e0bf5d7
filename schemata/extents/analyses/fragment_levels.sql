-- SPDX-License-Identifier: GPL-2.0-only
-- title: Levels
-- question: How fragmented are files, compared with what the free space alone predicts?
-- order: 20
-- events: EXTENT, SPACE
-- include: _extents
-- picture: histogram x=since x2=moment y=level colour=series
-- column device: device
-- column fs: file system
-- column until [ns]: end of a twelfth of the recording
-- column files [count]: with a place on the disk
-- column free [share]: part of the disk that is free; m is this and the room of one file
-- column file [share]: part of the disk that a file has, s
-- column fragments: mean fragments of a file
-- column predicted: 1/(2m - s), where fragmentation no longer changes, at least 1
-- column ratio: fragments / predicted
-- column since [ns]: time
-- column moment [ns]: end of a twelfth of the recording
-- column level: fragments of a file
-- column series: what
-- note: The prediction is for a disk that is always as full, whose files are deleted as wholes, in
--   an order that has nothing to do with their places, and for an allocator that knows no better.
-- note: m is free when a file was deleted and the next one is not yet written.
-- note: Bars of a twelfth of the time stand beside each other, for up to two devices.
-- note: Free space is an estimate: parts of the kernel's counter are by CPU. Of btrfs it is that of
--   the last commit, metadata included.
-- empty: no regular file got a place on the disk, or nothing told the free space

CREATE TEMP TABLE fragment_levels AS
WITH states AS (
    SELECT number, since, moment, device, any_value(fs) AS fs, count(*) AS files,
        avg(fragments) AS fragments, avg(bytes) AS bytes
    FROM extents_state GROUP BY number, since, moment, device
), room AS (
    SELECT device, time, total, free FROM SPACE WHERE total > 0
)
SELECT s.*, r.free / r.total AS m, s.bytes / r.total AS s,
    -- 2m - s, with m = free + s.
    CASE WHEN 2e0 * r.free + s.bytes > 0
         THEN greatest(r.total / (2e0 * r.free + s.bytes), 1) END AS predicted
FROM states AS s ASOF JOIN room AS r ON r.device = s.device AND r.time <= s.moment;

-- table
SELECT disk(device) AS device, extent_fs(fs) AS fs, moment AS until, files, m AS free,
    s AS file, round(fragments, 2) AS fragments, round(predicted, 2) AS predicted,
    round(fragments / predicted, 3) AS ratio
FROM fragment_levels ORDER BY device, moment DESC;

-- picture
WITH levels AS (
    SELECT since, moment, device, fs, unnest([fragments, predicted]) AS level,
        unnest(['measured', 'predicted']) AS what FROM fragment_levels
), ranked AS (
    SELECT *, dense_rank() OVER (ORDER BY device, what) AS nth FROM levels
), shown AS (
    SELECT *, max(nth) OVER () AS many FROM ranked WHERE nth <= 4
)
SELECT extents_bar(since, moment, nth, many) AS since,
    extents_bar(since, moment, nth + 1, many) AS moment, level,
    format('{} on {}: {}', extent_fs(fs), disk(device), what) AS series
FROM shown WHERE level IS NOT NULL ORDER BY series, since;

-- finding
SELECT format('{} on {}: {:.1f} fragments a file with {:.1f} % free, where 1/(2m - s) is {:.1f}.',
    extent_fs(fs), disk(device), fragments, 100 * m, predicted)
FROM fragment_levels WHERE number = 12 AND predicted IS NOT NULL ORDER BY fragments DESC, device;
