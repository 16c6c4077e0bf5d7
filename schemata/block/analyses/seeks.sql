-- SPDX-License-Identifier: GPL-2.0-only
-- title: Seeks
-- question: How many requests begin where the one before them ended, and how far away are others?
-- order: 60
-- events: RQ_DONE
-- include: _block
-- picture: histogram x=nearest x2=farthest y=requests colour=shown scale=log
-- column device: the whole disk
-- column kind: of the request that follows
-- column requests [count]: requests; reads and writes with data that follow another one
-- column sequential [share, bar]: begin where the request before them ended
-- column near [share]: begin elsewhere, less than 1 MiB away
-- column back [share]: begin before that place
-- column p50 [bytes]: distance of those that are not sequential; half are no farther
-- column p99 [bytes]: 99 of 100 are no farther
-- column shown: device and kind
-- column nearest [bytes]: bytes from the end of the request before it
-- column farthest [bytes]: distance
-- note: In the order in which the driver got them, reads and writes together: where a disk's head
--     would have to go. A device without a head may not care.
-- note: Requests between which events are missing are left out and counted.
-- empty: no two reads or writes of a device were issued while the log was recorded

-- No disk has as many sectors as damage may say: the distance has 63 bits.
CREATE TEMP VIEW seeks_order AS
SELECT device, kind, issued_ns, to_ns, CASE WHEN sector <= 4503599627370495 THEN sector
    ELSE 4503599627370495 END::BIGINT AS first, first + bytes // 512 AS stop
FROM block_request WHERE kind IN (0, 1, 7) AND bytes > 0 AND took > 0
ORDER BY device, issued_ns, to_ns, rq;
CREATE TEMP VIEW seeks_pair AS
SELECT device, kind, NULL AS place, from_ns, to_ns, distance
FROM (
    -- Each beside the one before it (docs/analyses.md, Rules).
    SELECT device, kind, to_ns, lag(device) OVER () AS device_before,
        lag(issued_ns) OVER () AS from_ns, (first - lag(stop) OVER ()) * 512 AS distance
    FROM seeks_order
) WHERE device = device_before;
CREATE TEMP TABLE seeks_seen AS
SELECT device, kind, distance, broken FROM klogger.broken('seeks_pair', ['RQ_DONE']);
CREATE TEMP VIEW seeks AS
SELECT device, kind, distance, abs(distance) AS far FROM seeks_seen WHERE NOT broken;

-- table
SELECT disk(device) AS device, request_kind(kind) AS kind, requests, sequential, near, back,
    p[1] AS p50, p[2] AS p99
FROM (
    SELECT device, kind, count(*) AS requests, count(*) FILTER (distance = 0) / count(*)
            AS sequential, count(*) FILTER (far > 0 AND far < 1048576) / count(*) AS near,
        count(*) FILTER (distance < 0) / count(*) AS back,
        quantile_disc(far, [0.5, 0.99]) FILTER (far > 0) AS p
    FROM seeks GROUP BY device, kind
)
ORDER BY requests DESC, device, kind;

-- picture
SELECT format('{} {}', disk(device), request_kind(kind)) AS shown,
    (1::BIGINT << floor(log2(far))::INTEGER) AS nearest, nearest * 2 AS farthest,
    count(*) AS requests
FROM seeks WHERE far > 0 GROUP BY device, kind, nearest ORDER BY shown, nearest;

-- finding
SELECT format('{:.0f} % of the reads and writes of {} begin where the one before them ended; half '
              'of the others are more than {} away.', 100.0 * sequential, disk(device),
    CASE WHEN p >= 1048576 THEN format('{:.0f} MiB', p / 1048576.0)
        ELSE format('{:.0f} KiB', p / 1024.0) END)
FROM (
    SELECT device, count(*) AS requests, count(*) FILTER (distance = 0) / count(*) AS sequential,
        quantile_disc(far, 0.5) FILTER (far > 0) AS p
    FROM seeks GROUP BY device
)
WHERE p IS NOT NULL ORDER BY requests DESC, device LIMIT 1;

-- warning
SELECT format('Left out, because events are missing in between: {:,} {}.', count(*),
    CASE count(*) WHEN 1 THEN 'request' ELSE 'requests' END)
FROM seeks_seen WHERE broken HAVING count(*) > 0;
