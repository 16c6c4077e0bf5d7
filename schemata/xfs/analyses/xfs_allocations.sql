-- SPDX-License-Identifier: GPL-2.0-only
-- title: Pieces that the allocator gave
-- question: In how many pieces, and from how many groups, did programs get the blocks they wanted?
-- order: 30
-- events: XFS_ALLOC, XFS_FREED
-- include: _xfs
-- picture: histogram x=from_blocks x2=to_blocks y=pieces colour=asks scale=log
-- combine: sum
-- column program: program; data are given their place by the kernel's own threads
-- column asks: data written before (delayed), or all else: metadata, direct I/O, fallocate
-- column pieces [count, bar]: pieces; that were given
-- column blocks [count]: in them
-- column wanted [count]: blocks that were asked for, at most
-- column whole [share, of pieces]: pieces as long as they were wanted
-- column per_request [count, less, wanted/blocks]: pieces for what was asked at once: wanted by got
-- column p50 [count, 0.5 of given]: half of the pieces have no more blocks
-- column groups [count, apart]: allocation groups that they are in
-- column took [ns, 0.5 of each]: half of them were found within this time, with the wait for the
--     group's header
-- column freed [count]: blocks that the program's threads gave back
-- column from_blocks [count]: blocks in a piece
-- column to_blocks [count]: up to this
-- note: Linux 6.1 has no event for the time, and counts blocks that a group keeps for its own
--     trees as pieces too.
-- note: An allocator that is asked for the rest again is told less: so 'per_request' is an
--     estimate, the sum of what was wanted by the sum of what was got.
-- empty: no blocks were allocated

CREATE TEMP TABLE xfs_allocations AS
WITH pieces AS (
    SELECT program, CASE WHEN delayed THEN 'delayed' ELSE 'other' END AS asks, count(*) AS pieces,
        xfs_ns(sum(got)) AS blocks, xfs_ns(sum(wanted)) AS wanted,
        avg((got >= wanted)::INT) AS whole,
        quantile_disc(got, 0.5) AS p50, count(DISTINCT (device, agno)) AS groups,
        quantile_disc(took, 0.5) FILTER (took > 0) AS took
    FROM with_program('xfs_piece') GROUP BY ALL
), freed AS (
    SELECT comm(tid, any_value(time)) AS program, xfs_ns(sum(blocks)) AS freed FROM XFS_FREED
    GROUP BY tid
), freed_by AS (
    SELECT program, 'other' AS asks, xfs_ns(sum(freed)) AS freed FROM freed GROUP BY program
)
SELECT program, asks, coalesce(pieces, 0) AS pieces, coalesce(blocks, 0) AS blocks,
    coalesce(wanted, 0) AS wanted, whole, p50, coalesce(groups, 0) AS groups, took,
    coalesce(freed, 0) AS freed
FROM pieces FULL JOIN freed_by USING (program, asks);

-- table
SELECT program, asks, pieces, blocks, wanted, whole, wanted / nullif(blocks, 0) AS per_request, p50,
    groups, took, freed
FROM xfs_allocations ORDER BY blocks DESC, program, asks LIMIT 200;

-- picture
SELECT 2 ** e AS from_blocks, 2 ** (e + 1) AS to_blocks, asks, count(*) AS pieces
FROM (SELECT floor(log2(got))::INT AS e, CASE WHEN delayed THEN 'delayed' ELSE 'other' END AS asks
      FROM xfs_piece WHERE got > 0)
GROUP BY e, asks ORDER BY e, asks;

-- finding
WITH a AS (SELECT count(*) AS pieces, xfs_ns(sum(got)) AS blocks, xfs_ns(sum(wanted)) AS wanted,
               count(*) FILTER (got < wanted) AS short FROM xfs_piece WHERE delayed)
SELECT format('Data that were written before got {:,} blocks in {:,} pieces; {:,} of them were'
    ' shorter than was asked for: free space is in pieces.', blocks, pieces, short)
FROM a WHERE short > 0;

-- histogram
SELECT program, CASE WHEN delayed THEN 'delayed' ELSE 'other' END AS asks,
    klogger.histogram_of(got) AS given, klogger.histogram_of(nullif(xfs_ns(took), 0)) AS each
FROM klogger.with_program('xfs_piece') GROUP BY ALL;
