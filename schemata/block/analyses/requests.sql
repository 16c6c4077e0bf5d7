-- SPDX-License-Identifier: GPL-2.0-only
-- title: Requests
-- question: How many requests did each device serve, of which kind, and how long did they take?
-- order: 10
-- events: RQ_DONE, RQ_FLUSHED, BIO_DONE
-- include: _block
-- picture: bars x=busy y=shown
-- combine: sum
-- column device: the whole disk; a device without requests (dm, md) has bios instead
-- column kind: what was asked for
-- column requests [count]: that were completed
-- column bytes [bytes, bar]: of all of them
-- column mean [bytes, apart]: of one that has data
-- column queue_p50 [ns, 0.5 of queue]: from the bio to the driver; half took no longer
-- column queue_p99 [ns, 0.99 of queue]: 99 of 100 took no longer
-- column p50 [ns, 0.5 of each]: in the driver and the device; half took no longer
-- column p99 [ns, 0.99 of each]: 99 of 100 took no longer
-- column max [ns, max]: the longest
-- column errors [count]: with another status than 0
-- column busy [ns]: time in the driver and the device; of requests at the same time, the sum
-- column shown: device and kind
-- note: A write that needs flushes around it counts as one write, and each flush as a flush, as in
--     /proc/diskstats. `rq_flushed` in the log has its time as a whole.
-- note: Of a bio, the time in the queue is not known: all of its time counts as that of the device.
-- empty: no request was completed while the log was recorded

CREATE TEMP TABLE requests AS
SELECT device, kind, count(*) FILTER (whole) AS requests, sum(bytes) AS bytes,
    count(*) FILTER (bytes > 0) AS with_data, count(*) FILTER (status <> 0) AS errors,
    quantile_disc(queued, [0.5, 0.99]) FILTER (took > 0) AS q,
    quantile_disc(took, [0.5, 0.99]) FILTER (took > 0) AS p,
    max(took) FILTER (took > 0) AS max, block_total(took) AS busy
FROM (
    SELECT device, kind, bytes, status, whole, queued, took FROM block_request
    UNION ALL
    SELECT device, 1, 0, status, true, 0, 0 FROM RQ_FLUSHED
    UNION ALL
    SELECT device, kind, bytes, status, true, NULL, took FROM block_bio
)
GROUP BY device, kind;

-- table
SELECT disk(device) AS device, request_kind(kind) AS kind, requests, bytes,
    CASE WHEN bytes > 0 THEN (bytes / with_data)::BIGINT END AS mean, q[1] AS queue_p50,
    q[2] AS queue_p99, p[1] AS p50, p[2] AS p99, max, errors
FROM requests ORDER BY requests.device, requests.kind;

-- picture
SELECT format('{} {}', disk(device), request_kind(kind)) AS shown, busy FROM requests
WHERE busy > 0 ORDER BY busy DESC, shown LIMIT 15;

-- finding
SELECT format('{} served {:,} requests; {:,} {}, {} each in the median, 99 of 100 within {}, took '
              'most of the time.',
    disk(device), all_requests, requests, CASE kind WHEN 1 THEN 'writes' WHEN 0 THEN 'reads'
        ELSE request_kind(kind) || ' requests' END, duration(p[1]), duration(p[2])),
    -- The devices serve requests at the same time, so that this is a share of their time.
    busy / greatest(sum(busy) OVER (), 1)
        * least(busy / greatest((SELECT to_ns FROM klogger.recording), 1), 1) AS weight
FROM (SELECT *, sum(requests) OVER (PARTITION BY device)::BIGINT AS all_requests FROM requests)
WHERE busy > 0 ORDER BY busy DESC, device, kind LIMIT 1;

-- samples
SELECT disk(device) AS device, request_kind(kind) AS kind, to_ns AS time, took AS p50
FROM block_request WHERE took > 0;

-- histogram
SELECT disk(device) AS device, request_kind(kind) AS kind,
    klogger.histogram_of(queued) AS queue, klogger.histogram_of(took) AS each
FROM (
    SELECT device, kind, block_ns(queued) AS queued, took FROM block_request
    UNION ALL SELECT device, kind, NULL, took FROM block_bio
) WHERE took > 0 GROUP BY ALL;
