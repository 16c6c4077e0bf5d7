-- SPDX-License-Identifier: GPL-2.0-only
-- title: How long data stay dirty
-- question: How long do the pages of each file stay dirty before they are written?
-- order: 40
-- events: DIRTY_PAGES, WB_PAGES
-- include: _writeback
-- picture: cdf x=ns y=part colour=file scale=log
-- column file: device and path
-- column pages [count]: pages that became dirty
-- column p50 [ns, bar]: half of those that were written were dirty for no longer
-- column p99 [ns]: 99 of 100
-- column max [ns]: the longest
-- column never [count]: not written within the log: still dirty, or deleted before
-- column written_by: who wrote most of them
-- column ns [ns]: time from dirty to the block layer
-- column part: part of the pages that were written by then
-- note: Percentiles count a folio of several pages once.
-- note: A crash loses what is dirty. The time ends when the page goes to the block layer; the disk
--     takes longer. Of a folio of several pages, the first write of any of them ends it.
-- empty: no page of a file became dirty by a thread in scope

-- Of a bio the first GiB is looked at, of a folio the first 8192 pages: a log that is not whole may
-- have far larger ones.
--
-- The files that become dirty, with the place of each file's first page among those of all files:
-- to join by one number takes a fifth less than by two. Numbers have room for thousands of the
-- largest files that can be; of a log that is not whole, files beyond are left out.
CREATE TEMP TABLE dirty_age_number AS
SELECT number, start::BIGINT AS start FROM (
    SELECT number, sum(stop) OVER (ORDER BY number) - stop AS start FROM (
        SELECT number, max(stop) AS stop FROM (
            SELECT number, max(index)::BIGINT + 8192 AS stop, true AS dirtied
            FROM writeback_dirtied GROUP BY number
            UNION ALL
            SELECT number, max(last)::BIGINT + 1, false FROM writeback_write GROUP BY number
        ) WHERE number > 0 GROUP BY number HAVING bool_or(dirtied)
    )
) WHERE start <= 4611686018427387903;
CREATE TEMP VIEW dirty_age_written AS
SELECT start + first::BIGINT AS page, time, via
FROM writeback_write JOIN dirty_age_number USING (number) WHERE first = last
UNION ALL
SELECT unnest(range(start + first::BIGINT, start + least(last, first + 262143)::BIGINT + 1)), time,
    via
FROM writeback_write JOIN dirty_age_number USING (number) WHERE first < last;
-- Most folios are of one page. Tables, so that the number of their rows is known: DuckDB compares
-- each row of what it takes for a few, as those of the other folios, with all that were written.
CREATE TEMP TABLE dirty_age_page AS
SELECT time, number, start + index::BIGINT AS page
FROM writeback_dirtied JOIN dirty_age_number USING (number) WHERE pages = 1;
CREATE TEMP TABLE dirty_age_folio AS
SELECT row_number() OVER () AS id, time, number, start + index::BIGINT AS page, pages
FROM writeback_dirtied JOIN dirty_age_number USING (number) WHERE pages > 1;
CREATE TEMP TABLE dirty_age_each AS
SELECT id, time, number, unnest(range(page, page + least(pages, 8192))) AS page, pages
FROM dirty_age_folio;
-- A folio is put together again of its pages.
CREATE TEMP VIEW dirty_age_all AS
SELECT number, 1::UINTEGER AS pages, w.time - e.time AS ns, w.via, NULL::INTEGER AS place,
    e.time AS from_ns, w.time AS to_ns
FROM dirty_age_page AS e ASOF LEFT JOIN dirty_age_written AS w
    ON w.page = e.page AND w.time >= e.time
UNION ALL
SELECT any_value(number), any_value(pages), min(w.time - e.time), arg_min(w.via, w.time), NULL,
    any_value(e.time), min(w.time)
FROM dirty_age_each AS e ASOF LEFT JOIN (
    FROM dirty_age_written SEMI JOIN dirty_age_each USING (page)
) AS w ON w.page = e.page AND w.time >= e.time GROUP BY id;
CREATE TEMP TABLE dirty_age_seen AS
SELECT number, pages, ns, via, broken
FROM klogger.broken('dirty_age_all', ['DIRTY_PAGES', 'WB_PAGES']);
CREATE TEMP VIEW dirty_age AS SELECT * EXCLUDE (broken) FROM dirty_age_seen WHERE NOT broken;
CREATE TEMP TABLE dirty_age_file AS
SELECT writeback_name(device, inode, path) AS file, s.*
FROM (
    SELECT number, sum(pages)::BIGINT AS pages, quantile_disc(ns, [0.5, 0.99]) AS p, max(ns) AS max,
        coalesce(sum(pages) FILTER (ns IS NULL), 0)::BIGINT AS never, mode(via) AS via
    FROM dirty_age GROUP BY number
) AS s JOIN writeback_number USING (number) LEFT JOIN writeback_file USING (device, inode, life);
CREATE TEMP TABLE dirty_age_top AS
SELECT number, file, dense_rank() OVER (ORDER BY file) AS place
FROM (SELECT * FROM dirty_age_file WHERE max IS NOT NULL ORDER BY pages DESC, file LIMIT 6);
CREATE TEMP VIEW dirty_age_curve AS
SELECT t.file AS series, t.place, a.ns
FROM dirty_age AS a JOIN dirty_age_top AS t USING (number) WHERE a.ns IS NOT NULL;

-- table
SELECT file, pages, p[1] AS p50, p[2] AS p99, max, never, written_by(via) AS written_by
FROM dirty_age_file ORDER BY pages DESC, file;

-- picture
SELECT greatest(ns, 1) AS ns, part, series AS file FROM curve_of('dirty_age_curve', 24)
ORDER BY place, part;

-- finding
SELECT format('Half of {:,} pages were dirty for {} or less, one of 100 for {} or more; {:,} were '
    'not written.', sum(pages)::BIGINT, duration(quantile_disc(ns, 0.5)),
    duration(quantile_disc(ns, 0.99)), coalesce(sum(pages) FILTER (ns IS NULL), 0)::BIGINT)
FROM dirty_age HAVING count(ns) > 0;

-- warning
SELECT format('Left out, because events are missing since they became dirty: {:,} pages.',
    sum(pages)::BIGINT)
FROM dirty_age_seen WHERE broken HAVING count(*) > 0;
