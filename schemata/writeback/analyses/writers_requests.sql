-- SPDX-License-Identifier: GPL-2.0-only
-- title: Requests by number of writers
-- question: How large and how sequential are the disk's requests, with how many threads that write?
-- order: 85
-- events: DIRTY_PAGES, WB_PAGES, RQ_DONE
-- include: _writeback
-- picture: bars x=mean y=shown
-- column device: file system
-- column writers [count]: threads that made pages dirty within the same second; 0: it was written
--     later
-- column time [ns]: sum of such seconds
-- column rate [bytes]: bytes in a second that the disk was asked to write, of files' pages
-- column requests [count]: requests for them
-- column mean [bytes, bar]: of a request
-- column sequential [share]: begin where the request to the disk before them ended
-- column p50 [ns]: half of the requests took the driver and the device no longer
-- column flusher [share]: of the bytes that were given to the block layer in these seconds, by
--     flushers
-- column sync [share]: by calls that sync
-- column reclaim [share]: by reclaim of memory
-- column shown: file system and writers
-- note: A request counts in the second in which the driver got it. Metadata and direct I/O are left
--     out, but a request of theirs in between is one that others do not follow.
-- note: What is missing of flusher, sync and reclaim was written by other threads, as with O_SYNC.
-- empty: no cached page of a file was written to a disk that has requests

CREATE TEMP MACRO writers_requests_second(t) AS t // 1000000000;
CREATE TEMP TABLE writers_requests_dirtied AS
SELECT device, writers_requests_second(time) AS second, count(DISTINCT tid) AS writers
FROM DIRTY_PAGES WHERE inode > 0 AND tid NOT IN (SELECT tid FROM writeback_worker) GROUP BY ALL;
CREATE TEMP MACRO writers_requests_least(x, most) AS
    (CASE WHEN x <= most THEN x ELSE most END)::BIGINT;
-- No disk has as many sectors as damage may say, and no time is longer than 73 years.
CREATE TEMP VIEW writers_requests_order AS
SELECT device AS disk, file_system AS device, kind = 1 AND inode > 0 AS of_file, bytes,
    writers_requests_least(took, 2305843009213693951::UBIGINT) AS took, time AS to_ns,
    time - writers_requests_least(took, 2305843009213693951::UBIGINT) AS issued_ns,
    writers_requests_least(sector, 4503599627370495::UBIGINT) AS first, first + bytes // 512 AS stop
FROM RQ_DONE WHERE kind IN (0, 1, 7) AND bytes > 0 AND took > 0
ORDER BY disk, issued_ns, to_ns, rq;
CREATE TEMP VIEW writers_requests_next AS
SELECT device, of_file, bytes, took, NULL AS place, to_ns,
    writers_requests_second(issued_ns) AS second,
    CASE WHEN disk = disk_before THEN issued_before ELSE issued_ns END AS from_ns,
    CASE WHEN disk = disk_before THEN first = stop_before END AS follows
FROM (
    -- Each beside the one before it (docs/analyses.md, Rules).
    SELECT *, lag(disk) OVER () AS disk_before, lag(issued_ns) OVER () AS issued_before,
        lag(stop) OVER () AS stop_before
    FROM writers_requests_order
);
CREATE TEMP TABLE writers_requests_done AS
SELECT device, second, bytes, took, broken, CASE WHEN NOT broken THEN follows END AS follows
FROM klogger.broken('writers_requests_next', ['RQ_DONE']) WHERE of_file;
CREATE TEMP TABLE writers_requests_given AS
SELECT device, writers_requests_second(time) AS second, sum(bytes) AS bytes,
    coalesce(sum(bytes) FILTER (via = 1), 0) AS flusher,
    coalesce(sum(bytes) FILTER (via = 2), 0) AS sync,
    coalesce(sum(bytes) FILTER (via = 3), 0) AS reclaim
FROM WB_PAGES WHERE inode > 0 GROUP BY ALL;
CREATE TEMP TABLE writers_requests AS
WITH done AS (
    SELECT device, coalesce(writers, 0) AS writers, count(*) AS requests, sum(bytes) AS bytes,
        quantile_disc(took, 0.5) AS p50, avg(follows::INTEGER) AS sequential
    FROM writers_requests_done LEFT JOIN writers_requests_dirtied USING (device, second)
    GROUP BY ALL
), seconds AS (
    SELECT device, second FROM writers_requests_dirtied
    UNION SELECT device, second FROM writers_requests_done
), spent AS (
    SELECT s.device, coalesce(w.writers, 0) AS writers,
        sum(greatest(least((s.second + 1) * 1000000000, r.to_ns) - s.second * 1000000000, 1))
            ::BIGINT AS time, sum(g.bytes) AS bytes, sum(g.flusher) AS flusher,
        sum(g.sync) AS sync, sum(g.reclaim) AS reclaim
    FROM klogger.recording AS r, seconds AS s
    LEFT JOIN writers_requests_dirtied AS w USING (device, second)
    LEFT JOIN writers_requests_given AS g USING (device, second) GROUP BY ALL
)
SELECT d.device, d.writers, s.time, (d.bytes / (s.time / 1e9))::BIGINT AS rate, d.requests,
    (d.bytes / d.requests)::BIGINT AS mean, d.sequential, d.p50, s.flusher / s.bytes AS flusher,
    s.sync / s.bytes AS sync, s.reclaim / s.bytes AS reclaim
FROM done AS d JOIN spent AS s USING (device, writers);

-- table
SELECT * REPLACE (disk(device) AS device) FROM writers_requests
ORDER BY writers_requests.device, writers;

-- picture
SELECT format('{}: {:02}', disk(device), writers) AS shown, mean FROM writers_requests
ORDER BY device, writers LIMIT 40;

-- finding
WITH ends AS (
    SELECT device, min(writers) AS few, max(writers) AS many, arg_min(mean, writers) AS few_mean,
        arg_max(mean, writers) AS many_mean, arg_min(sequential, writers) AS few_sequential,
        arg_max(sequential, writers) AS many_sequential, sum(time) AS time
    FROM writers_requests WHERE writers > 0 AND sequential IS NOT NULL
    GROUP BY device HAVING count(*) > 1
)
SELECT format('{}: with {:,} {} the mean request was {:.0f} KiB, and {:.0f} % began where the one '
    'before ended; with {:,}, {:.0f} KiB and {:.0f} %.', disk(device), few,
    CASE few WHEN 1 THEN 'writer' ELSE 'writers' END, few_mean / 1024, 100 * few_sequential, many,
    many_mean / 1024, 100 * many_sequential)
FROM ends ORDER BY time DESC, device LIMIT 1;

-- warning
SELECT format('Left out of the sequential ones, because events are missing in between: {:,} {}',
    count(*), CASE count(*) WHEN 1 THEN 'request' ELSE 'requests' END)
FROM writers_requests_done WHERE broken HAVING count(*) > 0;
