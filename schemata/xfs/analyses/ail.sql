-- SPDX-License-Identifier: GPL-2.0-only
-- title: Making space in the log
-- question: How full is the log, and what keeps its oldest entries from being written back?
-- order: 12
-- events: PUSH, LOG_WRITE
-- include: _xfs
-- picture: timeline x=from_ns x2=to_ns row=row colour=what y=low y2=high
-- combine: sum
-- column device: file system
-- column pushed [count, bar]: items written back to their places
-- column pinned [count]: that could not be: the log has not got them yet, and is forced
-- column locked [count]: that could not be: somebody uses them
-- column flushing [count]: that were already under way
-- column stuck [share, less, apart]: of all tries, those that were pinned or locked
-- column writes [count]: pieces of the log that were written
-- column bytes [bytes]: in them
-- column used_mean [share, of writes]: part of the log from its tail to its head, when a piece was
--     written
-- column used_max [share, max]: at most
-- column reserved_max [share, max]: part reserved for transactions under way, at most
-- column from_ns [ns]: time of the log
-- column to_ns [ns]: until then
-- column row: file system
-- column what: used, or reserved for transactions under way
-- column low: where the bar begins
-- column high: part of the log
-- note: The log's fill is read without a lock when a piece is written: an estimate. If it is more
--     than 3/4 full, transactions begin to wait (log_space).
-- empty: no piece of the log was written, and nothing written back

CREATE TEMP TABLE ail_pushes AS
SELECT device, count(*) FILTER (place(what) = 'xfs_ail_push') AS pushed,
    count(*) FILTER (place(what) = 'xfs_ail_pinned') AS pinned,
    count(*) FILTER (place(what) = 'xfs_ail_locked') AS locked,
    count(*) FILTER (place(what) = 'xfs_ail_flushing') AS flushing
FROM PUSH GROUP BY device;
CREATE TEMP TABLE ail_writes AS
SELECT device, count(*) AS writes, xfs_ns(sum(bytes)) AS bytes,
    avg(used / greatest(size, 1)) AS used_mean, max(used / greatest(size, 1)) AS used_max,
    max(reserved / greatest(size, 1)) AS reserved_max
FROM LOG_WRITE GROUP BY device;

-- table
SELECT disk(device) AS device, coalesce(pushed, 0) AS pushed, coalesce(pinned, 0) AS pinned,
    coalesce(locked, 0) AS locked, coalesce(flushing, 0) AS flushing,
    (pinned + locked) / nullif(pushed + pinned + locked + flushing, 0) AS stuck,
    coalesce(writes, 0) AS writes, coalesce(bytes, 0) AS bytes, used_mean, used_max, reserved_max
FROM ail_pushes AS p FULL JOIN ail_writes AS w USING (device) ORDER BY bytes DESC, 1 LIMIT 200;

-- picture
WITH slot AS (
    SELECT device,
        (time::HUGEINT * 500 // greatest((SELECT to_ns FROM klogger.recording), 1))::INT AS n,
        min(time) AS time, max(least(used / greatest(size, 1), 1)) AS used,
        max(least((used::DOUBLE + reserved) / greatest(size, 1), 1)) AS all_of_it
    FROM LOG_WRITE GROUP BY ALL
), next AS (
    SELECT *, coalesce(lead(time) OVER (PARTITION BY device ORDER BY n),
        (SELECT to_ns FROM klogger.recording)) AS to_ns FROM slot
)
SELECT time AS from_ns, to_ns, disk(device) AS row, what, low, high FROM (
    SELECT time, to_ns, device, 'used' AS what, 0.0 AS low, used AS high FROM next
    UNION ALL SELECT time, to_ns, device, 'reserved', used, all_of_it FROM next)
ORDER BY device, time, what DESC LIMIT 8000;

-- finding
WITH worst AS (
    SELECT device, pinned, locked, pinned + locked + pushed + flushing AS tries
    FROM ail_pushes WHERE pinned + locked > 0 ORDER BY pinned + locked DESC, device LIMIT 1)
SELECT format('Of {:,} tries to write back what fills the log of {}, {:,} failed because the log'
    ' had not got it yet, and {:,} because it was locked.', tries, disk(device), pinned, locked)
FROM worst;
