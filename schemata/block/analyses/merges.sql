-- SPDX-License-Identifier: GPL-2.0-only
-- title: Merging
-- question: How many bios became parts of other requests, and how many were split?
-- order: 70
-- events: RQ_DONE, RQ_FLUSHED, RQ_MERGE, BIO_SPLIT
-- include: _block
-- picture: stacked x=times y=shown colour=what
-- combine: sum
-- column device: the whole disk
-- column kind: kind of request
-- column requests [count]: that were completed
-- column behind [count]: bios that were added at the end of a request
-- column in_front [count]: bios that were added at its beginning
-- column joined [count]: requests that became a part of another one
-- column of_all [share, bar, apart]: of bios and requests, those that became a part of another one
-- column split [count]: parts that were cut off from bios that were too large for the device
-- column mean [bytes, apart]: of what was merged
-- column result [bytes, apart]: of a completed request with data, the mean
-- column shown: device and kind
-- column what: what became of the bios
-- column times [count]: bios and requests
-- note: `behind`, `in_front` and `joined` are together what /proc/diskstats counts as merged; a
--     discard that becomes a part of another discard as a bio is in that file only.
-- empty: nothing was completed, merged or split while the log was recorded

CREATE TEMP TABLE merges AS
SELECT device, kind, coalesce(requests, 0) AS requests, coalesce(behind, 0) AS behind,
    coalesce(in_front, 0) AS in_front, coalesce(joined, 0) AS joined, coalesce(split, 0) AS split,
    mean, result
FROM (
    SELECT device, kind, count(*) FILTER (whole) AS requests,
        (avg(bytes) FILTER (bytes > 0))::BIGINT AS result
    FROM (SELECT device, kind, whole, bytes FROM block_request
        UNION ALL SELECT device, 1, true, 0 FROM RQ_FLUSHED)
    WHERE kind <> 2 GROUP BY device, kind
)
FULL JOIN (
    SELECT device, kind, count(*) FILTER (side = 1) AS behind, count(*) FILTER (side = 2)
        AS in_front, count(*) FILTER (side = 3) AS joined, avg(bytes)::BIGINT AS mean
    FROM RQ_MERGE GROUP BY device, kind
) USING (device, kind)
FULL JOIN (SELECT device, kind, count(*) AS split FROM BIO_SPLIT GROUP BY device, kind)
    USING (device, kind);

-- table
SELECT disk(device) AS device, request_kind(kind) AS kind, requests, behind, in_front, joined,
    (behind + in_front + joined) / greatest(requests + behind + in_front + joined, 1) AS of_all,
    split, mean, result
FROM merges ORDER BY merges.device, merges.kind;

-- picture
SELECT format('{} {}', disk(device), request_kind(kind)) AS shown, what, times
FROM merges, unnest([{'what': 'became a request', 'times': requests},
    {'what': 'behind another', 'times': behind}, {'what': 'in front', 'times': in_front},
    {'what': 'requests joined', 'times': joined}]) AS u(part), (SELECT part.what, part.times)
WHERE times > 0 ORDER BY merges.device, merges.kind;

-- finding
SELECT format('{:.0f} % of the {}s to {} were merged into others: {} each became {}.',
    100.0 * merged / (requests + merged), request_kind(kind), disk(device),
    format('{:.0f} KiB', mean / 1024.0), format('{:.0f} KiB', result / 1024.0))
FROM (SELECT *, behind + in_front + joined AS merged FROM merges)
WHERE merged > 0 AND kind IN (0, 1) AND result > 0 ORDER BY merged DESC LIMIT 1;
