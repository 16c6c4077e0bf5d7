-- SPDX-License-Identifier: GPL-2.0-only
-- title: Sizes of requests
-- question: How large are the requests that reach each device?
-- order: 40
-- events: RQ_DONE
-- include: _block
-- picture: histogram x=smallest x2=largest y=requests colour=shown scale=log
-- combine: sum
-- column device: the whole disk
-- column kind: kind of request
-- column at_least [bytes, key]: requests of this size and of less than twice as much
-- column requests [count, bar]: requests; so many
-- column bytes [bytes]: of all of them
-- column p50 [ns, 0.5 of each]: in the driver and the device, half took no longer
-- column shown: device and kind
-- column smallest [bytes]: bytes of a request
-- column largest [bytes]: bytes of a request
-- note: A part of a request that was completed on its own counts as one.
-- empty: no request with data was completed while the log was recorded

CREATE TEMP TABLE sizes AS
SELECT device, kind, (1::BIGINT << floor(log2(bytes))::INTEGER) AS size, count(*) AS requests,
    sum(bytes)::BIGINT AS bytes, quantile_disc(took, 0.5) FILTER (took > 0) AS p50
FROM block_request WHERE bytes > 0 GROUP BY device, kind, size;

-- table
SELECT disk(device) AS device, request_kind(kind) AS kind, size AS at_least, requests, bytes,
    p50
FROM sizes ORDER BY sizes.device, sizes.kind, size;

-- picture
SELECT format('{} {}', disk(device), request_kind(kind)) AS shown, size AS smallest,
    size * 2 AS largest, requests
FROM sizes ORDER BY shown, smallest;

-- finding
SELECT format('A {} of {} has {:.0f} KiB in the mean.', request_kind(kind), disk(device),
    sum(bytes) / sum(requests) / 1024.0)
FROM sizes WHERE kind IN (0, 1) GROUP BY device, kind ORDER BY sum(bytes) DESC LIMIT 1;

-- histogram
SELECT disk(device) AS device, request_kind(kind) AS kind,
    (1::BIGINT << floor(log2(bytes))::INTEGER) AS at_least, klogger.histogram_of(took) AS each
FROM block_request WHERE bytes > 0 AND took > 0 GROUP BY ALL;
