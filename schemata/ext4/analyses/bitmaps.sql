-- SPDX-License-Identifier: GPL-2.0-only
-- title: Bitmaps that are loaded
-- question: Are the bitmaps of groups loaded again and again, because memory cannot keep them?
-- order: 80
-- events: BITMAP
-- picture: bars x=loads y=bitmap
-- column device: device of the file system
-- column bitmap: which one; buddies are made of the bitmap of blocks
-- column loads [count, bar]: times that one was loaded
-- column groups [count]: block groups that they are of
-- column again [count]: loads of one that had been loaded before
-- column ahead [count]: loaded before it was needed
-- column soonest [ns]: least time until the same one was loaded again
-- column program: program that loads most of them
-- empty: no bitmap was loaded: all that were needed are in memory

CREATE TEMP VIEW bitmaps_all AS
SELECT tid AS pid, time, device, what, block_group, ahead,
    time - lag(time) OVER (PARTITION BY device, what, block_group ORDER BY time) AS since
FROM BITMAP;
CREATE TEMP TABLE bitmaps AS
SELECT device, what, count(*) AS loads, count(DISTINCT block_group) AS groups,
    count(since) AS again, count(*) FILTER (ahead) AS ahead, min(since) AS soonest,
    mode(program ORDER BY program) AS program
FROM klogger.with_program('bitmaps_all') GROUP BY device, what;

-- table
SELECT disk(device) AS device, bitmap_kind(what) AS bitmap, * EXCLUDE (device, what)
FROM bitmaps ORDER BY loads DESC, device, what;

-- picture
SELECT format('{} {}', bitmap_kind(what), disk(device)) AS bitmap, loads FROM bitmaps
ORDER BY loads DESC, bitmap LIMIT 15;

-- finding
SELECT format('{:,} of {:,} loads of bitmaps {} of one that had been loaded before.',
    sum(again)::BIGINT, sum(loads)::BIGINT, CASE sum(again) WHEN 1 THEN 'was' ELSE 'were' END)
FROM bitmaps HAVING sum(again) > 0;
