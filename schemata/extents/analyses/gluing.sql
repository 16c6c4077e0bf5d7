-- SPDX-License-Identifier: GPL-2.0-only
-- title: Gluing
-- question: Does deleting files join free space as fast as writing files divides it?
-- order: 60
-- events: FREED, GONE, EXTENT
-- include: _extents
-- picture: histogram x=since x2=moment y=pieces colour=series
-- column device: device
-- column until [ns]: end of a twelfth of the recording
-- column deleted [count]: files
-- column freed [count]: ranges that became free, of deleted files, cut ones and metadata
-- column bytes [bytes]: of these ranges
-- column glued [count, bar]: joined with free space before or behind, both counted
-- column glued_share [share]: of the sides of the freed ranges, those that were joined
-- column per_file: glued for each deleted file
-- column divided: mean fragments of the files that there are, less one
-- column since [ns]: time
-- column moment [ns]: end of a twelfth of the recording
-- column pieces: pieces for each file
-- column series: what
-- note: Only XFS says what a freed range is joined with. In balance, as much is glued for a deleted
--   file as a new file divides: its fragments, less one.
-- note: Blocks that are still busy in the journal count as free here, which they are to XFS.
-- empty: nothing was freed on XFS

CREATE TEMP TABLE gluing AS
WITH freed AS (
    SELECT m.number, f.device, count(*) AS freed,
        least(sum(length), 9223372036854775807)::BIGINT AS bytes,
        sum(glued_before::INT + glued_behind::INT) AS glued
    FROM extents_moment AS m JOIN FREED AS f ON f.time > m.since AND f.time <= m.moment
    GROUP BY m.number, f.device
), gone AS (
    SELECT m.number, g.device, count(*) AS deleted
    FROM extents_moment AS m JOIN GONE AS g ON g.time > m.since AND g.time <= m.moment
    GROUP BY m.number, g.device
), states AS (
    SELECT number, device, avg(fragments) - 1 AS divided FROM extents_state GROUP BY number, device
)
SELECT m.since, m.moment, f.*, coalesce(deleted, 0) AS deleted, divided
FROM freed AS f JOIN extents_moment AS m USING (number) LEFT JOIN gone USING (number, device)
LEFT JOIN states USING (number, device);

-- table
SELECT disk(device) AS device, moment AS until, deleted, freed, bytes, glued,
    glued / (2 * freed) AS glued_share,
    CASE WHEN deleted > 0 THEN round(glued / deleted, 2) END AS per_file,
    round(divided, 2) AS divided
FROM gluing ORDER BY device, moment;

-- picture
WITH both_of AS (
    SELECT since, moment, device,
        unnest([coalesce(divided, 0), CASE WHEN deleted > 0 THEN glued / deleted ELSE 0 END])
            AS pieces,
        unnest(['divided by a file', 'glued by a deletion']) AS what
    FROM gluing
), ranked AS (
    SELECT *, dense_rank() OVER (ORDER BY device, what) AS nth FROM both_of
), shown AS (
    SELECT *, max(nth) OVER () AS many FROM ranked WHERE nth <= 4
)
SELECT extents_bar(since, moment, nth, many) AS since,
    extents_bar(since, moment, nth + 1, many) AS moment, pieces,
    format('{}: {}', disk(device), what) AS series
FROM shown ORDER BY series, since;

-- finding
SELECT format('{}: {} of {} sides of freed ranges were next to free space, {:.1f} for each of {} '
        || 'deleted files.', disk(device), sum(glued), 2 * sum(freed),
    sum(glued) / greatest(sum(deleted), 1), sum(deleted))
FROM gluing GROUP BY device HAVING sum(freed) > 0 ORDER BY device;
