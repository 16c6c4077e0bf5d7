-- SPDX-License-Identifier: GPL-2.0-only
-- title: Latency of the device
-- question: How are the times distributed that requests spend in the driver and the device?
-- order: 20
-- events: RQ_DONE, BIO_DONE
-- include: _block
-- picture: cdf x=took y=part colour=shown scale=log
-- combine: sum
-- column device: the whole disk
-- column kind: kind of request, with its marks
-- column requests [count, bar]: requests; so many
-- column min [ns, min]: the shortest
-- column p50 [ns, 0.5 of each]: half took no longer
-- column p90 [ns, 0.9 of each]: 9 of 10 took no longer
-- column p99 [ns, 0.99 of each]: 99 of 100 took no longer
-- column p999 [ns, 0.999 of each]: 999 of 1000 took no longer
-- column max [ns, max]: the longest
-- column lengths [spark, each, sum]: how many took how long: under 2 µs, 4 µs, and so on, each bar
--     twice as long, up to over 1 s
-- column shown: device and kind
-- column took [ns]: time in the driver and the device
-- column part [share]: requests that took no longer
-- note: From the moment at which a request is passed to the driver to its completion. Of bios of
--     dm, md and the like it is all of their time.
-- note: The picture names the nine kinds with the most requests, and draws all others as one.
-- empty: no request that was issued while the log was recorded was completed

-- The marks of its name; the name itself is made of groups, not of each request.
CREATE TEMP MACRO latency_marks(kind, how) AS CASE WHEN kind = 2 THEN 0 ELSE how & 94 END;
CREATE TEMP VIEW latency AS
SELECT device, kind, latency_marks(kind, how) AS marks, took FROM block_request WHERE took > 0
UNION ALL
SELECT device, kind, latency_marks(kind, how), took FROM block_bio;

-- table
SELECT disk(device) AS device, block_name(kind, marks) AS kind, requests, min, p[1] AS p50,
    p[2] AS p90, p[3] AS p99, p[4] AS p999, max, octaves(h) AS lengths
FROM (
    SELECT device, kind, marks, count(*) AS requests, min(took) AS min, max(took) AS max,
        quantile_disc(took, [0.5, 0.9, 0.99, 0.999]) AS p, histogram(octave(took)) AS h
    FROM latency GROUP BY device, kind, marks
)
ORDER BY requests DESC, device, kind;

-- picture
WITH total AS (
    SELECT device, kind, marks, block_name(kind, marks) AS name, count(*) AS requests
    FROM latency GROUP BY device, kind, marks
), ranked AS (
    SELECT *, row_number() OVER (ORDER BY requests DESC, device, name) AS rank FROM total
), named AS (
    SELECT device, kind, marks, least(rank, 10) AS place,
        CASE WHEN rank <= 9 THEN format('{} {}', disk(device), name) ELSE 'other' END AS series
    FROM ranked
), sample AS (
    SELECT series, place, took AS ns FROM latency JOIN named USING (device, kind, marks)
)
SELECT series AS shown, ns AS took, part FROM klogger.curve_of('sample', 8)
ORDER BY place, shown, part;

-- finding
SELECT format('The slowest of 1000 requests of {} took {} times as long as the median, at least '
              '{}: {} of the time of all were spent in it.', disk(device),
              round(p[2] / greatest(p[1], 1))::BIGINT, duration(p[2]),
              format('{:.1f} %', 100.0 * tail / greatest(busy, 1))),
    tail / greatest(busy, 1) AS weight
FROM (
    SELECT device, p, block_total(took) AS busy,
        least(sum(took) FILTER (took >= p[2]), 9223372036854775807)::BIGINT AS tail
    FROM latency JOIN (
        SELECT device, quantile_disc(took, [0.5, 0.999]) AS p, count(*) AS many
        FROM latency GROUP BY device
    ) USING (device)
    WHERE many >= 1000 GROUP BY device, p
)
WHERE p[2] > 4 * p[1] ORDER BY tail DESC LIMIT 1;

-- samples
SELECT disk(device) AS device, to_ns AS time, took AS p50 FROM block_request WHERE took > 0;

-- histogram
SELECT disk(device) AS device, kind, klogger.histogram_of(took) AS each
FROM latency GROUP BY ALL;
