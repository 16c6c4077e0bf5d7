-- SPDX-License-Identifier: GPL-2.0-only
-- What all analyses of `block` share: each request with its times, and how it is called.

-- With the marks that say what it is for: metadata, FUA, preflush, read-ahead, swap.
CREATE TEMP MACRO block_name(kind, how) AS request_kind(kind)
    || CASE WHEN kind = 2 OR how & 94 = 0 THEN '' ELSE ', ' || request_flags((how & 94)::UTINYINT)
    END;
CREATE TEMP MACRO block_what(kind, how, bytes, sector) AS request_kind(kind)
    || CASE WHEN bytes = 0 THEN '' WHEN bytes % 1024 = 0 THEN format(' of {:,} KiB', bytes // 1024)
        ELSE format(' of {:,} B', bytes) END
    || CASE WHEN bytes = 0 OR sector IS NULL THEN '' ELSE format(' at {}', sector) END
    || substr(block_name(kind, how), length(request_kind(kind)) + 1);
-- No time that damage makes is longer than 73 years, so that a few can be added.
-- least() would take longer than all else that is done with a request here.
CREATE TEMP MACRO block_ns(x) AS
    (CASE WHEN x <= 2305843009213693951::UBIGINT THEN x ELSE 2305843009213693951::UBIGINT END)
        ::BIGINT;
CREATE TEMP MACRO block_total(x) AS least(sum(x), 9223372036854775807)::BIGINT;
-- Logs of before have no `kernel`: there it is not known, and names decide.
CREATE TEMP VIEW block_done AS
FROM RQ_DONE UNION ALL BY NAME SELECT NULL::BOOLEAN AS kernel WHERE false;
CREATE TEMP VIEW block_bio_done AS
FROM BIO_DONE UNION ALL BY NAME SELECT NULL::BOOLEAN AS kernel WHERE false;
-- A request that was under way when the recording began, or was not passed to a driver, took 0.
CREATE TEMP TABLE block_ended AS
SELECT time AS to_ns, rq, device, sector, bytes, kind, how,
    pid, inode, file_system, status, whole, kernel, block_ns(took) AS took,
    block_ns(queued) AS queued
FROM block_done;
CREATE TEMP VIEW block_request AS
SELECT *, to_ns - took AS issued_ns, to_ns - took - queued AS from_ns FROM block_ended;
-- Those of devices without requests, as of dm.
CREATE TEMP VIEW block_bio AS
SELECT time AS to_ns, time - block_ns(took) AS from_ns, device, sector, bytes, kind, how, pid,
    inode, file_system, status, kernel, block_ns(took) AS took
FROM block_bio_done;
-- Requests that were not done when the recording ended, as the recorder has found them. And, with
-- `issues`, those that were issued last under their number, and not done or put back since. If
-- events were lost after that, it is not known: `broken`.
CREATE TEMP TABLE block_last AS
SELECT NULL AS place, issued.time AS from_ns, NULL::BIGINT AS to_ns, issued.*
FROM (SELECT rq, max(time) AS time FROM RQ_ISSUE GROUP BY rq) AS last
JOIN RQ_ISSUE AS issued USING (rq, time)
LEFT JOIN (
    SELECT rq, max(time) AS ended FROM (
        SELECT rq, time FROM RQ_DONE UNION ALL SELECT rq, time FROM RQ_REQUEUE
    ) GROUP BY rq
) AS ends USING (rq)
WHERE ended IS NULL OR ended < issued.time;
CREATE TEMP TABLE block_open AS
SELECT time - block_ns(since) AS from_ns, rq, device, sector, bytes, kind, how, pid FROM RQ_OPEN
UNION ALL
SELECT from_ns, rq, device, sector, bytes, kind, how, pid
FROM klogger.broken('block_last', ['RQ_DONE', 'RQ_REQUEUE'])
WHERE NOT broken AND rq NOT IN (SELECT rq FROM RQ_OPEN);
CREATE TEMP VIEW block_unsure AS
SELECT count(*) AS count FROM klogger.broken('block_last', ['RQ_DONE', 'RQ_REQUEUE']) WHERE broken;
