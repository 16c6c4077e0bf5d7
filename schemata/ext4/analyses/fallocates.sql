-- SPDX-License-Identifier: GPL-2.0-only
-- title: fallocate() and its pieces
-- question: In how many pieces does fallocate() get its blocks, and how long does each take?
-- order: 60
-- events: CALL, ALLOC
-- picture: bars x=ns_per_gib y=call
-- column program: program
-- column device: device of the file system
-- column inode: number of the file
-- column length [bytes]: of the call
-- column took [ns, bar]: time of the call
-- column pieces [count]: requests to the allocator
-- column largest [count]: blocks of the largest piece
-- column smallest [count]: blocks of the smallest piece
-- column groups [count]: groups searched
-- column allocating [share]: of the time, in the allocator
-- column ns_per_gib [ns]: time for 1 GiB at this rate
-- column result: 0, or the error
-- column call: file and length
-- note: Calls that only change the size, or fall on blocks that are there, have no pieces.
-- empty: nobody called fallocate() on ext4

CREATE TEMP TABLE fallocates_calls AS
SELECT row_number() OVER (ORDER BY time, tid) AS id, tid AS pid, time,
    time - ns AS from_ns, time AS to_ns, ns, device, inode, position, length, result, mode
FROM (
    SELECT * REPLACE (greatest(length, 0) AS length),
        least(took, 9223372036854775807)::BIGINT AS ns
    FROM CALL WHERE what = 0
);
CREATE TEMP TABLE fallocates AS
WITH placed AS (
    SELECT c.id, a.given, a.groups, a.took
    FROM ALLOC AS a ASOF JOIN fallocates_calls AS c
        ON a.tid = c.pid AND a.device = c.device AND a.inode = c.inode AND a.time >= c.from_ns
    WHERE a.time <= c.to_ns AND a.contents AND a.given > 0
)
SELECT c.*, count(p.given) AS pieces, max(p.given) AS largest, min(p.given) AS smallest,
    coalesce(sum(p.groups), 0)::BIGINT AS groups,
    least(coalesce(sum(p.took), 0), 9223372036854775807)::BIGINT AS allocating
FROM fallocates_calls AS c LEFT JOIN placed AS p USING (id) GROUP BY ALL;

-- table
SELECT program, disk(device) AS device, inode, length, ns AS took, pieces, largest, smallest,
    groups, allocating / greatest(ns, 1) AS allocating,
    least(round(ns * 1073741824.0 / greatest(length, 1)), 9e18)::BIGINT AS ns_per_gib,
    errno(result) AS result
FROM klogger.with_program('fallocates') ORDER BY ns DESC, time, inode;

-- picture
SELECT format('{} of {}: {} MiB', inode, disk(device), round(length / 1048576.0, 1)) AS call,
    least(round(ns * 1073741824.0 / greatest(length, 1)), 9e18)::BIGINT AS ns_per_gib
FROM fallocates WHERE pieces > 0 ORDER BY ns DESC, time LIMIT 15;

-- finding
SELECT format('fallocate() of {:,.0f} MiB in {:,} {} took {}, in {:,} pieces of {:,.0f} blocks on'
        || ' average; {:.0f} % of the time was in the allocator.', sum(length) / 1048576, count(*),
        CASE count(*) WHEN 1 THEN 'call' ELSE 'calls' END,
        duration(least(sum(ns), 9223372036854775807)::BIGINT), sum(pieces)::BIGINT,
        coalesce((SELECT avg(given) FROM ALLOC AS a JOIN fallocates AS f ON a.tid = f.pid
            AND a.inode = f.inode AND a.contents AND a.time BETWEEN f.from_ns AND f.to_ns), 0),
        100 * sum(allocating) / greatest(sum(ns), 1)),
    least(sum(ns) / (SELECT greatest(to_ns - from_ns, 1) FROM klogger.recording), 1) AS weight
FROM fallocates WHERE result = 0 HAVING count(*) > 0;
