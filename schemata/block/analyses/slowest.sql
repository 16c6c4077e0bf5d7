-- SPDX-License-Identifier: GPL-2.0-only
-- title: The slowest requests
-- question: Which requests took longest, and what did the device have to do before them?
-- order: 25
-- events: RQ_DONE, RQ_OPEN, RQ_ISSUE, RQ_REQUEUE
-- include: _block
-- picture: stacked x=ns y=shown colour=part
-- column at [ns]: when it was asked for
-- column program: thread that asked for it
-- column device: the whole disk
-- column what: kind, marks, size and first sector
-- column total [ns, bar]: from the bio to its completion
-- column queued [ns]: of it, before it was passed to the driver
-- column took [ns]: of it, in the driver and the device
-- column ahead [count]: requests that the device had when it got this one
-- column ahead_bytes [bytes]: of them
-- column ahead_what: which ones
-- column overtaken [count]: requests that it got later and that were done before
-- column shown: request
-- column part: where it was
-- column ns [ns]: time
-- note: What was ahead need not be the cause: a device may serve requests in any order.
-- empty: no request that was issued while the log was recorded was completed

CREATE TEMP TABLE slowest AS
SELECT row_number() OVER (ORDER BY queued + took DESC, to_ns) AS rank, *
FROM (FROM block_request WHERE took > 0 ORDER BY queued + took DESC, to_ns LIMIT 20);
CREATE TEMP TABLE slowest_met AS
SELECT s.rank, r.kind, count(*) AS many, sum(r.bytes)::BIGINT AS bytes
FROM slowest AS s JOIN (
    SELECT device, rq, issued_ns, to_ns, bytes, kind FROM block_request WHERE took > 0
    UNION ALL
    SELECT device, rq, from_ns, 9223372036854775807, bytes, kind FROM block_open
) AS r ON r.device = s.device AND r.issued_ns < s.issued_ns AND r.to_ns > s.issued_ns
GROUP BY s.rank, r.kind;
CREATE TEMP TABLE slowest_told AS
SELECT s.*, coalesce(m.ahead, 0) AS ahead, coalesce(m.ahead_bytes, 0) AS ahead_bytes,
    m.ahead_what, coalesce(o.overtaken, 0) AS overtaken,
    block_what(kind, how, bytes, sector) AS what
FROM slowest AS s LEFT JOIN (
    SELECT rank, sum(many)::BIGINT AS ahead, sum(bytes)::BIGINT AS ahead_bytes,
        string_agg(format('{:,} {}', many, request_kind(kind)), ', ' ORDER BY many DESC, kind)
            AS ahead_what
    FROM slowest_met GROUP BY rank
) AS m USING (rank) LEFT JOIN (
    SELECT s.rank, count(*) AS overtaken FROM slowest AS s JOIN block_request AS r
        ON r.device = s.device AND r.issued_ns > s.issued_ns AND r.to_ns < s.to_ns AND r.took > 0
    GROUP BY s.rank
) AS o USING (rank);

-- table
SELECT greatest(from_ns, 0) AS at,
    CASE WHEN pid = 0 THEN 'nobody' ELSE thread(pid, from_ns) END AS program, what,
    queued + took AS total, queued, took, ahead_what, ahead, ahead_bytes, overtaken,
    disk(device) AS device
FROM slowest_told ORDER BY rank;

-- picture
SELECT format('{}. {}', rank, block_what(kind, 0, bytes, NULL)) AS shown, part, ns
FROM slowest_told, unnest([{'part': 'queue', 'ns': queued}, {'part': 'device', 'ns': took}])
    AS u(p), (SELECT p.part, p.ns)
ORDER BY rank, part DESC;

-- finding
SELECT format('The slowest request, {}, took {}: {} before the driver got it, with {:,} requests '
              'ahead of it.', what, duration(queued + took), duration(queued), ahead),
    least((queued + took) / greatest((SELECT to_ns FROM klogger.recording), 1), 1) AS weight
FROM slowest_told WHERE rank = 1;
