-- SPDX-License-Identifier: GPL-2.0-only
-- title: Formats of directories and attributes
-- question: Which directories and attribute forks changed their format, at which size, and did any
--     go back and forth?
-- order: 40
-- events: FORMAT
-- include: _xfs
-- picture: timeline x=from_ns x2=to_ns row=inode colour=format
-- column inode: inode; its device and number
-- column fork: directory, or the attributes of an inode
-- column switches [count]: changes of format
-- column up [count]: to a format for more
-- column down [count]: to one for less
-- column thrash [count, bar, less]: changes that undid one which was done less than 1 s before
-- column sequence: formats, in this order; of more than 8 changes the first and the last
-- column sizes: bytes at these changes
-- column last: format at the end
-- column from_ns [ns]: time of the log
-- column to_ns [ns]: until then
-- column format: format; the row is the directory, or the inode of the attributes
-- note: Bytes are the directory's size before the change; of attributes those in the inode.
-- note: Whether a directory thrashes: at least 3 changes that undo another one (fsadapt's rule).
-- note: That attributes go from a tree (node) back to one block has no event.
-- note: Other switches of a file, list of extents to tree, are in 'xfs_extents'.
-- empty: no directory and no attribute fork changed its format

CREATE TEMP TABLE formats AS
SELECT time, device, inode, fork, before, format, bytes, tid,
    time - lag(time) OVER w <= 1000000000 AND lag(before) OVER w = format
        AND lag(format) OVER w = before AS undoes,
    coalesce(lead(time) OVER w, (SELECT to_ns FROM klogger.recording)) AS to_ns
FROM FORMAT WINDOW w AS (PARTITION BY device, inode, fork ORDER BY time);
CREATE TEMP TABLE formats_by AS
SELECT device, inode, fork, count(*) AS switches, count(*) FILTER (format > before) AS up,
    count(*) FILTER (format < before) AS down, count(*) FILTER (undoes) AS thrash,
    list(fork_format(format) ORDER BY time) AS forms, list(bytes ORDER BY time) AS bytes,
    min_by(fork_format(before), time) AS first, max_by(fork_format(format), time) AS last,
    max_by(tid, time) AS tid, min(time) AS time
FROM formats GROUP BY device, inode, fork;
CREATE TEMP MACRO formats_text(l) AS CASE WHEN len(l) <= 8 THEN array_to_string(l, ' ')
    ELSE array_to_string(l[:4], ' ') || ' ... ' || array_to_string(l[-4:], ' ') END;

-- table
SELECT xfs_file(device, inode) AS inode, fork(fork) AS fork, switches, up, down, thrash,
    first || ' ' || formats_text(forms) AS sequence, formats_text(bytes) AS sizes, last
FROM formats_by ORDER BY thrash DESC, switches DESC, device, formats_by.inode, fork LIMIT 200;

-- picture
WITH top AS (SELECT device, inode, fork FROM formats_by
             ORDER BY thrash DESC, switches DESC, device, inode, fork LIMIT 20)
SELECT f.time AS from_ns, f.to_ns, xfs_file(device, f.inode) AS inode, fork_format(format) AS format
FROM formats AS f JOIN top USING (device, inode, fork)
ORDER BY device, f.inode, fork, f.time LIMIT 8000;

-- finding
WITH worst AS (FROM formats_by WHERE thrash >= 3 ORDER BY thrash DESC, device, inode LIMIT 1)
SELECT format('{} {} goes back and forth between {} and {}: {:,} of its {:,} changes undo one of'
    ' the second before, by {}.',
    CASE fork WHEN 0 THEN 'Directory' ELSE 'The attribute fork of' END,
    xfs_file(device, inode), first, forms[1], thrash, switches, comm(tid, time))
FROM worst;
