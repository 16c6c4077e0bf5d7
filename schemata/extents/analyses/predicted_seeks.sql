-- SPDX-License-Identifier: GPL-2.0-only
-- title: Seeks
-- question: How often must a disk seek to read a file, and how much slower does that make it?
-- order: 40
-- events: EXTENT
-- include: _extents
-- picture: cdf x=speed y=part colour=of
-- column device: device
-- column fs: file system
-- column inode: inode number of the file
-- column bytes [bytes]: of the file that have a place on the disk
-- column fragments [count]: pieces that are not neighbours on the disk
-- column seeks [count, bar]: of the steps between them, those that need a seek
-- column waits [count]: those over gaps that the disk waits for
-- column fresh [ns]: time to read the file if it were in one piece
-- column now [ns]: time to read it as it is
-- column speed [share]: relative speed; fresh / now
-- column part [share]: files that are not faster
-- column of: file system
-- note: A model of a disk with 9 ms for a seek and 8.33 ms for a turn, which waits over gaps of up
--   to 676 KiB. Set others with --set seek_us=, turn_us= and gap_kib= when it is recorded.
-- note: What is between the pieces of a file, such as its metadata, is not read in the model.
-- empty: no regular file has a place on the disk

CREATE TEMP MACRO predicted_seeks_set(wanted, default_value) AS
    coalesce((SELECT any_value(value)::BIGINT FROM klogger.parameter
              WHERE schema = 'extents' AND name = wanted), default_value);
CREATE TEMP TABLE predicted_seeks_disk AS
WITH given AS (
    SELECT 1000 * predicted_seeks_set('seek_us', 9000) AS ts,
        1000 * predicted_seeks_set('turn_us', 8330) AS tr,
        1024 * predicted_seeks_set('gap_kib', 676) AS sg
)
-- While the disk would seek, as much goes by as the largest gap that it waits over: so a byte takes
-- each ns. (The track skew is in both, and cancels.)
SELECT sg, ts + tr / 2 AS seek, (ts + tr / 2) / sg AS each FROM given;
CREATE TEMP TABLE predicted_seeks AS
WITH pieces AS (
    SELECT *, physical - lag(physical + length) OVER (PARTITION BY device, inode ORDER BY logical)
        AS gap
    FROM extents_part WHERE to_ns IS NULL
), counted AS (
    SELECT device, inode, any_value(fs) AS fs, sum(length)::BIGINT AS bytes,
        1 + count(*) FILTER (gap <> 0) AS fragments,
        count(*) FILTER (gap < 0 OR gap > sg) AS seeks,
        count(*) FILTER (gap > 0 AND gap <= sg) AS waits,
        coalesce(sum(gap) FILTER (gap > 0 AND gap <= sg), 0) AS gaps
    FROM pieces, predicted_seeks_disk GROUP BY device, inode
)
SELECT c.*, least(bytes * each, 9e18)::BIGINT AS fresh,
    least((bytes + gaps) * each + seeks * seek, 9e18)::BIGINT AS now,
    bytes * each / ((bytes + gaps) * each + seeks * seek) AS speed
FROM counted AS c, predicted_seeks_disk;

-- table
SELECT disk(device) AS device, extent_fs(fs) AS fs, inode, bytes, fragments, seeks, waits, fresh,
    now, speed
FROM predicted_seeks ORDER BY seeks DESC, speed, device, inode;

-- picture
WITH ranked AS (
    SELECT device, fs, speed, row_number() OVER one AS rank, count(*) OVER (PARTITION BY device)
        AS many
    FROM predicted_seeks WINDOW one AS (PARTITION BY device ORDER BY speed)
)
SELECT speed, rank / many AS part, format('{} on {}', extent_fs(fs), disk(device)) AS of
FROM ranked
WHERE rank = 1 OR rank = many OR rank % (many // 200 + 1) = 0
QUALIFY dense_rank() OVER (ORDER BY device) <= 6 ORDER BY of, speed, part;

-- finding
SELECT format('{} on {}: a disk would read the files at {:.0f} % of the speed of files in one '
        || 'piece, with {:.1f} seeks a file.', extent_fs(any_value(fs)), disk(device),
    100.0 * sum(fresh) / sum(now), avg(seeks)), 1 - sum(fresh) / sum(now) AS weight
FROM predicted_seeks GROUP BY device HAVING sum(seeks) > 0 ORDER BY weight DESC, device;
