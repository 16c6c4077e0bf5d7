-- SPDX-License-Identifier: GPL-2.0-only
-- What all analyses of `extents` share: the map of each file over time, from its changes.
--
-- Each change covers a range of a file. All ranges of a file are cut at all borders that its
-- changes have; of each part the newest change counts, until the next one. So a state at any time
-- is a selection of rows of extents_part.

-- No offset of a file is larger than this, but in a log that is not whole.
CREATE TEMP MACRO extents_offset(x) AS least(x, 9223372036854775807);
-- ext4: from a time on, what was behind an offset of a file is elsewhere in it.
CREATE TEMP TABLE extents_shift AS
SELECT device, inode, time, extents_offset(behind)::BIGINT AS behind,
    greatest(moved::HUGEINT, -extents_offset(behind)::HUGEINT) AS moved,
    row_number() OVER file AS shift,
    sum(greatest(moved, 0)) OVER (PARTITION BY device, inode) AS longer
FROM SHIFTED WHERE moved <> 0 WINDOW file AS (PARTITION BY device, inode ORDER BY time, serial);

-- What is cut off goes to the largest offset: only to the last border that a piece has.
CREATE TEMP TABLE extents_given AS
WITH pieces AS (
    SELECT * REPLACE (extents_offset(logical)::BIGINT AS logical),
        extents_offset(extents_offset(logical) + extents_offset(length))::BIGINT AS behind
    FROM EXTENT WHERE length > 0
), ends AS (
    SELECT p.device, p.inode, extents_offset(max(p.behind) + coalesce(max(s.longer), 0)) AS most
    FROM pieces AS p LEFT JOIN (
        SELECT DISTINCT device, inode, longer FROM extents_shift
    ) AS s USING (device, inode) WHERE what <> 2 GROUP BY ALL
), cut AS (
    SELECT e.* REPLACE (least(behind, most)::BIGINT AS behind)
    FROM pieces AS e JOIN ends USING (device, inode) WHERE logical < most
)
SELECT device, inode, time, cpu, serial, logical, behind,
    least(physical, 9223372036854775807 - (behind - logical))::BIGINT AS physical, what, unwritten,
    stored, fs, tid, row_number() OVER (PARTITION BY tid ORDER BY time, serial) AS turn
FROM cut;

-- With each shift of a file its map begins anew, with all older changes where they have moved to.
CREATE TEMP TABLE extents_change AS
WITH RECURSIVE shifting AS (
    SELECT g.*, coalesce(s.shift, 0) AS shift
    FROM (FROM extents_given WHERE (device, inode) IN (SELECT (device, inode) FROM extents_shift))
        AS g
    ASOF LEFT JOIN extents_shift AS s
        ON (s.device, s.inode) = (g.device, g.inode) AND g.time > s.time
    UNION ALL
    SELECT * EXCLUDE (behind_shift, moved, before) REPLACE (
        CASE WHEN before THEN logical
            ELSE extents_offset(greatest(logical, behind_shift) + moved)::BIGINT END AS logical,
        CASE WHEN before THEN least(behind, least(behind_shift, behind_shift + moved))
            ELSE extents_offset(behind + moved) END::BIGINT AS behind,
        physical + CASE WHEN before THEN 0
            ELSE greatest(least(behind_shift, behind) - logical, 0) END AS physical
    )
    FROM (
        SELECT m.* REPLACE (s.shift AS shift), s.behind AS behind_shift, s.moved,
            unnest([true, false]) AS before
        FROM shifting AS m JOIN extents_shift AS s
            ON (s.device, s.inode, s.shift) = (m.device, m.inode, m.shift + 1)
    ) WHERE CASE WHEN before THEN logical < least(behind_shift, behind_shift + moved)
        ELSE behind > behind_shift END
)
SELECT g.*, 0 AS shift, NULL::BIGINT AS since, NULL::BIGINT AS until FROM extents_given AS g
WHERE (device, inode) NOT IN (SELECT (device, inode) FROM extents_shift)
UNION ALL SELECT m.*, s.time, n.time FROM shifting AS m
LEFT JOIN extents_shift AS s USING (device, inode, shift)
LEFT JOIN extents_shift AS n ON (n.device, n.inode, n.shift) = (m.device, m.inode, m.shift + 1);

CREATE TEMP TABLE extents_border AS
WITH borders AS (
    SELECT device, inode, logical AS edge FROM extents_change
    UNION SELECT device, inode, behind FROM extents_change
)
SELECT device, inode, edge, row_number() OVER (ORDER BY device, inode, edge) AS number,
    lead(edge) OVER (PARTITION BY device, inode ORDER BY edge) AS next
FROM borders;

CREATE TEMP TABLE extents_version AS
WITH covered AS (
    SELECT c.*, unnest(range(f.number, t.number)) AS number
    FROM extents_change AS c
    JOIN extents_border AS f ON (f.device, f.inode, f.edge) = (c.device, c.inode, c.logical)
    JOIN extents_border AS t ON (t.device, t.inode, t.edge) = (c.device, c.inode, c.behind)
)
SELECT c.device, c.inode, c.fs, b.number, b.edge AS logical, b.next - b.edge AS length,
    c.physical + CASE WHEN c.stored > 0 THEN 0 ELSE b.edge - c.logical END AS physical,
    c.unwritten, c.stored, c.what, greatest(c.time, since) AS from_ns,
    coalesce(lead(greatest(c.time, since)) OVER part, until) AS to_ns, c.serial,
    c.tid, c.turn, c.time < coalesce(since, c.time) AS moved, row_number() OVER part AS nth, c.shift
FROM covered AS c JOIN extents_border AS b USING (number)
WINDOW part AS (PARTITION BY b.number, c.shift ORDER BY c.time, c.serial);

-- Ranges that have a place on the disk, and from when to when (NULL: to the end).
CREATE TEMP VIEW extents_part AS SELECT * FROM extents_version WHERE what NOT IN (2, 5);

-- Pieces of all files at a time: parts that are neighbours in the file and on the disk are one.
CREATE TEMP MACRO extents_at(moment) AS TABLE
WITH parts AS (
    SELECT *, coalesce(lag(logical + length) OVER file = logical
        AND lag(physical + length) OVER file = physical
        AND lag(unwritten) OVER file = unwritten AND stored = 0, false) AS joins
    FROM extents_part WHERE from_ns <= moment AND coalesce(to_ns > moment, true)
    WINDOW file AS (PARTITION BY device, inode ORDER BY logical)
), counted AS (
    SELECT *, sum((NOT joins)::INT) OVER (PARTITION BY device, inode ORDER BY logical) AS piece
    FROM parts
)
SELECT device, inode, any_value(fs) AS fs, min(logical) AS logical, min(physical) AS physical,
    sum(length)::BIGINT AS length, any_value(unwritten) AS unwritten, max(stored) AS stored
FROM counted GROUP BY device, inode, piece;

-- How a part has changed: its version compared with the one before. XFS joins and divides records
-- by removing them and adding others at once: what it puts back at the same place was not away.
CREATE TEMP TABLE extents_change_of_part AS
WITH next AS (
    SELECT *, coalesce(fs = 2 AND lead(tid) OVER part = tid AND lead(turn) OVER part - turn <= 4
        AND lead(physical) OVER part = physical, false) AS comes_back
    FROM extents_version WINDOW part AS (PARTITION BY number, shift ORDER BY nth)
), compared AS (
    SELECT *, lag(what) OVER part AS what_before, lag(physical) OVER part AS physical_before,
        lag(unwritten) OVER part AS unwritten_before
    FROM next WHERE NOT (what IN (2, 5) AND comes_back)
    WINDOW part AS (PARTITION BY number, shift ORDER BY nth)
)
SELECT device, inode, fs, number, logical, length, physical, from_ns AS time,
    CASE WHEN what IN (2, 5) THEN 'removed'
         WHEN what_before IS NULL AND what IN (3, 4) THEN 'seen'
         WHEN what_before IS NULL OR what_before IN (2, 5) THEN 'new'
         WHEN physical <> physical_before THEN 'elsewhere'
         WHEN unwritten_before AND NOT unwritten THEN 'written'
         WHEN unwritten AND NOT unwritten_before THEN 'unwritten'
         ELSE 'same' END AS change
FROM compared WHERE NOT moved;

CREATE TEMP TABLE extents_moment AS
SELECT number, (from_ns + (to_ns - from_ns) * (number - 1) // 12)::BIGINT AS since,
    CASE WHEN number = 12 THEN to_ns ELSE from_ns + (to_ns - from_ns) * number // 12 END::BIGINT
        AS moment
FROM klogger.recording, range(1, 13) AS numbers(number);

-- Each file at twelve moments, of which the last is the end. A fragment ends where the disk would
-- not just go on: whether its bytes were written does not matter.
CREATE TEMP TABLE extents_state AS
WITH parts AS (
    SELECT m.number, m.since, m.moment, p.*, coalesce(lag(p.logical + p.length) OVER file
            = p.logical AND p.stored = 0, false) AS follows,
        lag(p.physical + p.length) OVER file AS disk_before,
        lag(p.unwritten) OVER file AS unwritten_before
    FROM extents_moment AS m
    JOIN extents_part AS p ON p.from_ns <= m.moment AND coalesce(p.to_ns > m.moment, true)
    WINDOW file AS (PARTITION BY m.number, p.device, p.inode ORDER BY p.logical)
)
SELECT number, since, moment, device, inode, any_value(fs) AS fs, sum(length)::BIGINT AS bytes,
    count(*) FILTER (NOT follows OR disk_before <> physical OR unwritten_before <> unwritten)
        AS extents,
    1 + count(*) FILTER (disk_before <> physical) AS fragments
FROM parts GROUP BY number, since, moment, device, inode;

CREATE TEMP VIEW extents_last AS SELECT * FROM extents_state WHERE number = 12;

-- Bars beside each other within a twelfth: the one with this number, of so many.
CREATE TEMP MACRO extents_bar(since, moment, number, many) AS
    since + ((moment - since) * (number - 1) // many)::BIGINT;
