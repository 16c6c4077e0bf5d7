-- SPDX-License-Identifier: GPL-2.0-only
-- title: Fragments
-- question: Into how many pieces are files divided, and does it become worse?
-- order: 10
-- events: EXTENT, UNFOLLOWED, GONE
-- include: _extents
-- picture: histogram x=since x2=moment y=fragments_mean colour=of
-- column device: device
-- column fs: file system
-- column inode: inode number of the file
-- column bytes [bytes]: of the file that have a place on the disk
-- column extents [count]: pieces; a border is also where written bytes begin or end
-- column fragments [count, bar]: pieces that are not neighbours on the disk
-- column mean [bytes]: mean length of a fragment
-- column unknown: why parts of its map may be missing or at other places; none: nothing was missed
-- column since [ns]: time
-- column moment [ns]: end of a twelfth of the recording
-- column fragments_mean: mean fragments of a file
-- column of: file system
-- note: Bars of a twelfth of the time stand beside each other, for up to four devices.
-- note: Of files that are older than the recording, only what was changed or looked up is counted.
-- note: Addresses of btrfs are its own: pieces that are neighbours there may be on several disks.
-- empty: no regular file got, changed or lost a place on the disk

-- A file that was deleted since is another one.
CREATE TEMP TABLE fragments_unknown AS
WITH deleted AS (SELECT device, inode, max(time) AS time FROM GONE GROUP BY ALL)
SELECT u.device, u.inode, arg_max(why, u.time) AS why
FROM UNFOLLOWED AS u LEFT JOIN deleted AS g USING (device, inode)
WHERE u.time > coalesce(g.time, -1) GROUP BY ALL;

-- table
SELECT disk(device) AS device, extent_fs(fs) AS fs, inode, bytes, extents, fragments,
    (bytes // fragments) AS mean, extent_unknown(why) AS unknown
FROM extents_last LEFT JOIN fragments_unknown USING (device, inode)
ORDER BY fragments DESC, bytes DESC, device, inode;

-- picture
WITH means AS (
    SELECT since, moment, device, fs, avg(fragments) AS mean,
        dense_rank() OVER (ORDER BY device) AS nth
    FROM extents_state GROUP BY since, moment, device, fs
), shown AS (
    SELECT *, max(nth) OVER () AS many FROM means WHERE nth <= 4
)
SELECT extents_bar(since, moment, nth, many) AS since,
    extents_bar(since, moment, nth + 1, many) AS moment, mean AS fragments_mean,
    format('{} on {}', extent_fs(fs), disk(device)) AS of
FROM shown ORDER BY of, since;

-- finding
SELECT format('{} on {}: {} files have {:.1f} fragments on average, {} at most; {} in one '
        || 'piece.', extent_fs(any_value(fs)), disk(device), count(*), avg(fragments),
    max(fragments), count(*) FILTER (fragments = 1))
FROM extents_last GROUP BY device ORDER BY avg(fragments) DESC, device;

-- warning
SELECT format('Of {:,} {} parts of the map may be missing, or at other places: {}', count(*),
    CASE count(*) WHEN 1 THEN 'file' ELSE 'files' END, string_agg(DISTINCT extent_unknown(why), ', '
        ORDER BY extent_unknown(why)))
FROM fragments_unknown HAVING count(*) > 0;
