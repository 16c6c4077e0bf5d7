-- SPDX-License-Identifier: GPL-2.0-only
-- title: Throughput by number of writers
-- question: How much is written, and in what pieces, with how many threads that write at once?
-- order: 80
-- events: DIRTY_PAGES, WB_PAGES
-- include: _writeback
-- picture: bars x=written y=writers
-- combine: sum
-- column device: file system
-- column writers [count, key]: threads that made pages dirty within the same 100 ms
-- column time [ns]: sum of such periods
-- column dirtied [bytes, of time]: that became dirty in a second
-- column written [bytes, bar, of time]: bytes in a second that were given to the block layer
-- column mean [bytes, apart]: of a bio
-- column files [count, of time]: that were written in a period, on average
-- column waited [share, of time]: of the writers' time, that they were made to wait
-- note: The mean is of bios, before the block layer joins or splits them. CPU time is in the schema
--     scheduler; the study writers divides it by what was written.
-- empty: no page of a file became dirty by a thread in scope

CREATE TEMP MACRO writers_period(t) AS t // 100000000;
CREATE TEMP TABLE writers_dirtied AS
SELECT device, writers_period(time) AS period, count(DISTINCT tid) AS writers,
    sum(pages) * writeback_page() AS bytes
FROM DIRTY_PAGES WHERE inode > 0 AND tid NOT IN (SELECT tid FROM writeback_worker)
GROUP BY ALL;
CREATE TEMP TABLE writers_written AS
SELECT device, writers_period(time) AS period, sum(bytes) AS bytes, count(*) AS writes,
    count(DISTINCT inode) AS files
FROM WB_PAGES WHERE inode > 0 GROUP BY ALL;
CREATE TEMP TABLE writers_waited AS
SELECT writers_period(time) AS period, sum(least(took, 100000000)) AS ns FROM WB_RESUMED
GROUP BY ALL;
CREATE TEMP TABLE writers AS
SELECT d.device, d.writers, count(*) * 100000000 AS time,
    (sum(d.bytes) / (count(*) / 10))::BIGINT AS dirtied,
    (coalesce(sum(w.bytes), 0) / (count(*) / 10))::BIGINT AS written,
    (sum(w.bytes) / sum(w.writes))::BIGINT AS mean, coalesce(sum(w.files), 0) / count(*) AS files,
    least(coalesce(sum(s.ns), 0) / (sum(d.writers) * 100000000), 1) AS waited
FROM writers_dirtied AS d LEFT JOIN writers_written AS w USING (device, period)
LEFT JOIN writers_waited AS s USING (period) GROUP BY d.device, d.writers;

-- table
SELECT disk(device) AS device, writers, time, dirtied, written, mean, files, waited FROM writers
ORDER BY device, writers;

-- picture
SELECT format('{}: {:02}', disk(device), writers) AS writers, written FROM writers
ORDER BY device, writers LIMIT 40;

-- finding
WITH ends AS (
    SELECT device, min(writers) AS few, max(writers) AS many, arg_min(mean, writers) AS few_mean,
        arg_max(mean, writers) AS many_mean, sum(time) AS time
    FROM writers WHERE mean IS NOT NULL GROUP BY device HAVING count(*) > 1
)
SELECT format('{}: the mean write was {:.0f} KiB with {:,} {}, and {:.0f} KiB with {:,}.',
    disk(device), few_mean / 1024, few, CASE few WHEN 1 THEN 'writer' ELSE 'writers' END,
    many_mean / 1024, many)
FROM ends ORDER BY time DESC, device LIMIT 1;
