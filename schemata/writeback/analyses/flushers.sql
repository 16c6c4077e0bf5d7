-- SPDX-License-Identifier: GPL-2.0-only
-- title: Who writes pages back
-- question: Who writes dirty pages: flushers, calls that sync, or reclaim of memory?
-- order: 20
-- events: WB_PAGES, WB_ROUND, RECLAIM_WRITE
-- include: _writeback
-- picture: bars x=bytes y=who
-- combine: sum
-- column who: a flusher and its reason; a program in a call that syncs; reclaim; another thread
-- column what: pages of files, or metadata through the block device
-- column bytes [bytes, bar]: given to the block layer
-- column of_all [share, bytes/*]: of all bytes
-- column writes [count]: bios
-- column mean [bytes, bytes/writes]: of a bio
-- column p50 [bytes, apart]: half of the bios are no larger
-- column in_order [share, apart]: bios that begin where the one before in the same file ended,
--     or behind;
--     little: pages are written in another order than that of the file, as by reclaim
-- column files [count, apart]: files
-- note: Bios are joined to larger requests, or split, before they reach the disk: see the schema
--     block.
-- note: A write to a file that was opened with O_SYNC is no call that syncs: its program is another
--     thread here.
-- empty: no page of a file was written while the log was recorded

-- Each beside the one before it (docs/analyses.md, Rules). It is read once, so it is a view.
CREATE TEMP VIEW flushers_order AS
SELECT time, pid, number, bytes, via, reason, coalesce(position >= lag(stop) OVER ()
    OR number <> lag(number) OVER (), true) AS in_order
FROM (
    SELECT time, tid AS pid, number, bytes, via, reason, position, position + bytes AS stop
    FROM writeback_write ORDER BY number, time
);
-- Texts are made of groups, not of each write.
CREATE TEMP TABLE flushers AS
SELECT CASE via WHEN 1 THEN format('flusher: {}', flush_reason(reason))
        WHEN 2 THEN format('{}: sync', program) WHEN 3 THEN format('{}: reclaim', program)
        ELSE format('{}', program) END AS who,
    CASE WHEN metadata THEN 'metadata' ELSE 'files' END AS what,
    * EXCLUDE (reason, program, metadata)
FROM (
    SELECT via, CASE WHEN via = 1 THEN reason END AS reason,
        CASE WHEN via <> 1 THEN program END AS program, number < 0 AS metadata,
        writeback_big(sum(bytes)) AS bytes, count(*) AS writes, avg(bytes)::BIGINT AS mean,
        quantile_disc(bytes, 0.5)::BIGINT AS p50, avg(in_order::INTEGER) AS in_order,
        count(DISTINCT number) AS files
    FROM with_program('flushers_order') GROUP BY ALL
);

-- table
SELECT who, what, bytes, bytes / sum(bytes) OVER () AS of_all, writes, mean, p50, in_order, files
FROM flushers ORDER BY bytes DESC, who, what;

-- picture
SELECT who, sum(bytes)::BIGINT AS bytes FROM flushers GROUP BY who
ORDER BY bytes DESC, who LIMIT 15;

-- finding
WITH file AS (
    SELECT sum(bytes) AS bytes, coalesce(sum(bytes) FILTER (via = 1), 0) AS flushers,
        coalesce(sum(bytes) FILTER (via = 2), 0) AS syncs,
        coalesce(sum(bytes) FILTER (via = 3), 0) AS reclaims
    FROM flushers WHERE what = 'files'
)
SELECT text, weight FROM (
    SELECT format('Of {:.1f} MiB of files, flushers wrote {:.0f} %, calls that sync {:.0f} %, '
        'reclaim of memory {:.0f} %.', bytes / 1048576, 100 * flushers / bytes,
        100 * syncs / bytes, 100 * reclaims / bytes) AS text, NULL::DOUBLE AS weight
    FROM file WHERE bytes > 0
    UNION ALL SELECT format('Reclaim of memory wrote {:,} pages of files, one by one: with more '
        'memory, or a lower vm.dirty_background_ratio, flushers write them in order.', count(*)),
        least(count(*) / greatest((SELECT sum(bytes) FROM flushers) / writeback_page(), 1), 1)
    FROM RECLAIM_WRITE WHERE inode > 0 HAVING count(*) > 0
) ORDER BY weight NULLS LAST;
