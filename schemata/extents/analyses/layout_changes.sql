-- SPDX-License-Identifier: GPL-2.0-only
-- title: Changes
-- question: When do file systems change the form in which they keep a file, and how much?
-- order: 50
-- events: EXTENT, SHIFTED
-- include: _extents
-- picture: bars x=times y=shown scale=log
-- column fs: file system
-- column change: what changed; of forms: the one before and the one after
-- column times [count, bar]: changes
-- column files [count]: files of which
-- column bytes [bytes]: so much of them changed; of forms: mean size that was mapped by then
-- column records [count]: of forms: median number of records of the map, if it is known
-- column shown: file system, and what changed
-- note: The form is that of the moment of a change of the map: if a map grows into a tree, the next
--   change shows it.
-- note: XFS keeps a list in the inode, then a B-tree; ext4 four extents in the inode, then a tree.
-- note: On XFS, what moves because a range is cut out or put in counts as data that are written to
--   another place.
-- empty: no file changed its form, and nothing that was preallocated was written

CREATE TEMP TABLE layout_changes AS
WITH formats AS (
    SELECT device, inode, fs, time, records, format,
        extents_offset(logical) + extents_offset(length) AS behind,
        lag(format) OVER file AS before, lag(records) OVER file AS records_before
    FROM EXTENT WHERE format > 0
    WINDOW file AS (PARTITION BY device, inode ORDER BY time, serial)
), changes AS (
    SELECT fs, format('{} to {}', extent_format(before), extent_format(format)) AS change, device,
        inode, time, least(behind, 9223372036854775806)::BIGINT AS bytes,
        greatest(records, records_before) AS records, true AS form
    FROM formats WHERE before <> format
    UNION ALL
    SELECT fs, CASE change WHEN 'written' THEN 'unwritten space is written'
        WHEN 'unwritten' THEN 'written space becomes unwritten'
        ELSE 'data are written to another place' END, device, inode, time, length, NULL, false
    FROM extents_change_of_part WHERE change IN ('written', 'unwritten', 'elsewhere')
    UNION ALL
    SELECT fs, 'what is behind has moved', device, inode, time,
        abs(greatest(moved, -9223372036854775807)), NULL, false
    FROM SHIFTED
)
SELECT extent_fs(fs) AS fs, change, count(*) AS times, count(DISTINCT (device, inode)) AS files,
    (CASE WHEN any_value(form) THEN avg(bytes) FILTER (bytes < 1::BIGINT << 60)
          ELSE least(sum(bytes), 9e18) END)::BIGINT AS bytes,
    quantile_disc(records, 0.5) FILTER (records > 0) AS records
FROM changes GROUP BY fs, change;

-- table
SELECT *, format('{}: {}', fs, change) AS shown FROM layout_changes
ORDER BY times DESC, fs, change;

-- finding
SELECT format('{}: {} times, {} of {} files.', fs, times, change, files)
FROM layout_changes WHERE change LIKE '% to %' AND change NOT LIKE '%place'
ORDER BY times DESC, fs, change LIMIT 3;
