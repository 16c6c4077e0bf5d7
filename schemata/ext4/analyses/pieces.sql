-- SPDX-License-Identifier: GPL-2.0-only
-- title: Pieces of the allocator
-- question: In how large pieces are blocks given, and how long does the allocator search for them?
-- order: 50
-- events: ALLOC, PREALLOC
-- picture: histogram x=from_blocks x2=to_blocks y=requests colour=source scale=log
-- combine: sum
-- column blocks: of the piece
-- column source: searched, or from a preallocation of before
-- column requests [count, bar]: answered with such a piece
-- column share [share, apart]: of all blocks that were given
-- column whole [share, of requests]: of the requests got all that they asked for
-- column rounding [apart]: blocks that the allocator looked for, by those asked for
-- column groups [of requests]: groups searched by a request, on average
-- column found [of requests]: free extents looked at by a request, on average
-- column near_goal [share, of requests]: of the searches, that gave the very block that was wished
-- column p50 [ns, 0.5 of each]: half of the requests took no longer
-- column p99 [ns, 0.99 of each]: 99 of 100 took no longer
-- column from_blocks: blocks of a piece; from
-- column to_blocks: to
-- note: Blocks of extent trees and directories are not counted.
-- note: A piece is at most one block group, 32,768 blocks of 4 KiB.
-- empty: no blocks were allocated while the log was recorded

CREATE TEMP TABLE pieces AS
SELECT device, given, asked, took, groups, found, block = goal AS near_goal, original, wanted,
    CASE WHEN preallocated THEN 'preallocated' ELSE 'searched' END AS source,
    floor(log2(greatest(given, 1)))::INT AS octave
FROM ALLOC WHERE given > 0 AND contents;

-- table
SELECT CASE octave WHEN 0 THEN '1' ELSE format('{:,} to {:,}', (2 ** octave)::BIGINT,
        (2 ** (octave + 1))::BIGINT - 1) END AS blocks, source, count(*) AS requests,
    sum(given) / greatest(sum(sum(given)) OVER (), 1) AS share,
    avg((given >= asked)::INT) AS whole,
    round(avg(wanted / original) FILTER (original > 0), 2) AS rounding,
    round(avg(groups), 2) AS groups, round(avg(found), 2) AS found,
    avg(near_goal::INT) AS near_goal, quantile_disc(took, 0.5) AS p50,
    quantile_disc(took, 0.99) AS p99
FROM pieces GROUP BY octave, source ORDER BY octave DESC, source;

-- picture
SELECT 2 ** octave AS from_blocks, 2 ** (octave + 1) AS to_blocks, source, count(*) AS requests
FROM pieces GROUP BY octave, source ORDER BY octave, source;

-- finding
SELECT format('{:,} requests for blocks were answered with {:,.0f} blocks on average'
        || ' and {:,} at most; {:.0f} % of them got less than they asked for.', count(*),
        avg(given), max(given), 100 * avg((given < asked)::INT)),
    least(sum(took) / (SELECT greatest(to_ns - from_ns, 1) FROM klogger.recording), 1) AS weight
FROM pieces HAVING count(*) > 0;

-- warning
SELECT format('{:,} {} no blocks.', count(*),
    CASE count(*) WHEN 1 THEN 'request got' ELSE 'requests got' END)
FROM ALLOC WHERE given = 0 AND contents HAVING count(*) > 0;

-- histogram
SELECT CASE octave WHEN 0 THEN '1' ELSE format('{:,} to {:,}', (2 ** octave)::BIGINT,
        (2 ** (octave + 1))::BIGINT - 1) END AS blocks, source,
    klogger.histogram_of(took) AS each
FROM pieces GROUP BY ALL;
