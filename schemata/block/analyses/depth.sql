-- SPDX-License-Identifier: GPL-2.0-only
-- title: Queue depth
-- question: How many requests did each device have at a time?
-- order: 50
-- events: RQ_DONE, RQ_OPEN, RQ_ISSUE, RQ_REQUEUE
-- include: _block
-- picture: histogram x=begins x2=ends y=depth colour=shown
-- column device: the whole disk
-- column busy [share, bar]: part of the time of the log in which it had a request
-- column mean [count]: requests at a time, while it had any
-- column max [count]: most requests at a time
-- column d1 [share]: of the busy time, with one request
-- column d2 [share]: with 2 or 3
-- column d4 [share]: with 4 to 7
-- column d8 [share]: with 8 to 15
-- column d16 [share]: with 16 to 31
-- column d32 [share]: with 32 or more
-- column begins [ns]: time
-- column ends [ns]: time
-- column depth [count]: requests at a time; the mean of a 64th of the log
-- column shown: device
-- note: Weighted by time. A request counts from the moment at which it is passed to the driver.
-- note: Requests that were under way when the recording began do not count.
-- note: The picture shows the five devices that were busy for longest.
-- empty: no request was issued while the log was recorded

-- How many there are after each step: of all devices up to its own, for there is one order of all
-- steps (docs/analyses.md, Rules).
CREATE TEMP VIEW depth_step AS
SELECT device, time, change, sum(change) OVER (ROWS UNBOUNDED PRECEDING) AS depth
FROM (
    SELECT device, issued_ns AS time, 1::TINYINT AS change FROM block_request WHERE took > 0
    UNION ALL SELECT device, to_ns, -1 FROM block_request WHERE took > 0
    UNION ALL SELECT device, from_ns, 1 FROM block_open
    ORDER BY device, time, change
);
CREATE TEMP TABLE depth_reached AS
SELECT device, depth, change, count(*) AS steps, sum(time) AS times FROM depth_step GROUP BY ALL;
-- What a device has at the end, and those before it.
CREATE TEMP VIEW depth_left AS
SELECT device, rest, sum(rest) OVER (ORDER BY device ROWS UNBOUNDED PRECEDING) - rest AS others
FROM (SELECT device, sum(change * steps) AS rest FROM depth_reached GROUP BY device);
-- How long a depth lasted is the sum of the times at which it was left, or of the end of the log,
-- less those at which it was reached: so no step has to know the next one.
CREATE TEMP TABLE depth_time AS
SELECT device, depth, sum(ns)::BIGINT AS ns
FROM (
    SELECT device, depth - others AS depth, -times AS ns FROM depth_reached JOIN depth_left
        USING (device)
    UNION ALL
    SELECT device, depth - others - change, times FROM depth_reached JOIN depth_left USING (device)
    UNION ALL
    SELECT device, rest, (SELECT to_ns FROM klogger.recording) FROM depth_left
) WHERE depth > 0 GROUP BY device, depth HAVING sum(ns) > 0;
CREATE TEMP TABLE depth AS
SELECT device, sum(ns)::BIGINT AS busy, max(depth)::BIGINT AS max,
    sum(depth * ns) / greatest(sum(ns), 1) AS mean,
    sum(ns) FILTER (depth = 1) AS d1, sum(ns) FILTER (depth BETWEEN 2 AND 3) AS d2,
    sum(ns) FILTER (depth BETWEEN 4 AND 7) AS d4, sum(ns) FILTER (depth BETWEEN 8 AND 15) AS d8,
    sum(ns) FILTER (depth BETWEEN 16 AND 31) AS d16, sum(ns) FILTER (depth >= 32) AS d32
FROM depth_time GROUP BY device;
CREATE TEMP MACRO depth_share(part, busy) AS coalesce(part, 0) / greatest(busy, 1);

-- table
SELECT disk(device) AS device, least(depth.busy / greatest(whole, 1), 1) AS busy,
    round(mean, 2) AS mean, max, depth_share(d1, depth.busy) AS d1,
    depth_share(d2, depth.busy) AS d2, depth_share(d4, depth.busy) AS d4,
    depth_share(d8, depth.busy) AS d8, depth_share(d16, depth.busy) AS d16,
    depth_share(d32, depth.busy) AS d32
FROM depth, (SELECT to_ns AS whole FROM klogger.recording) ORDER BY depth.busy DESC, depth.device;

-- picture
-- The mean of a bin is the sum of the parts of requests in it, by its width.
WITH bin AS (
    SELECT greatest(to_ns // 64, 1) AS width FROM klogger.recording
), shown AS (
    SELECT device FROM depth ORDER BY busy DESC, device LIMIT 5
), stay AS (
    SELECT device, greatest(issued_ns, 0) AS from_ns, to_ns FROM block_request WHERE took > 0
    UNION ALL
    SELECT device, greatest(from_ns, 0), (SELECT to_ns FROM klogger.recording) FROM block_open
), placed AS (
    SELECT device, from_ns, to_ns, width, from_ns // width AS first, (to_ns - 1) // width AS last
    FROM stay JOIN shown USING (device), bin WHERE to_ns > from_ns
), part AS (
    -- Nearly all are in one bin.
    SELECT device, width, first AS n, sum(to_ns - from_ns) AS ns FROM placed WHERE first = last
    GROUP BY device, width, first
    UNION ALL
    SELECT device, width, n, least(to_ns, (n + 1) * width) - greatest(from_ns, n * width)
    FROM (SELECT *, unnest(range(first, last + 1)) AS n FROM placed WHERE first < last)
)
SELECT disk(device) AS shown, n * width AS begins, (n + 1) * width AS ends,
    round(sum(ns) / width, 3) AS depth
FROM part GROUP BY device, n, width ORDER BY shown, begins;

-- finding
SELECT format('{} had {} requests at a time in the mean, at most {}, and none for {:.0f} % of the '
              'time.', disk(device), round(mean, 1), max,
              100 - 100.0 * least(busy / greatest(whole, 1), 1))
FROM depth, (SELECT to_ns AS whole FROM klogger.recording) ORDER BY busy DESC, device LIMIT 1;
