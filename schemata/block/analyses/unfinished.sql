-- SPDX-License-Identifier: GPL-2.0-only
-- title: Requests that were not done
-- question: Which requests did a driver have that it had not completed when the recording ended?
-- order: 15
-- events: RQ_OPEN, RQ_ISSUE, RQ_DONE, RQ_REQUEUE
-- include: _block
-- picture: bars x=since y=shown scale=log
-- column at [ns]: when the driver got it
-- column program: thread that asked for it
-- column device: the whole disk
-- column what: kind, marks, size and first sector
-- column since [ns, bar]: how long it has had it
-- column shown: request
-- note: Some are usual, if the device was busy when the recording ended.
-- empty: each request that was issued was completed, or given back, before the recording ended

CREATE TEMP TABLE unfinished AS
SELECT from_ns, pid, device, block_what(kind, how, bytes, sector) AS what,
    (SELECT to_ns FROM klogger.recording) - from_ns AS since
FROM block_open;

-- table
SELECT greatest(from_ns, 0) AS at,
    CASE WHEN pid = 0 THEN 'nobody' ELSE thread(pid, from_ns) END AS program,
    disk(device) AS device, what, since
FROM unfinished ORDER BY from_ns, what;

-- picture
SELECT format('{} {}', disk(device), what) AS shown, since FROM unfinished
ORDER BY since DESC, shown LIMIT 20;

-- finding
-- A hundred times as long as the longest that were done: that is no longer usual.
SELECT format('{} has had {:,} {} for {} that it had not completed when the recording ended.',
        disk(device), count(*), CASE count(*) WHEN 1 THEN 'request' ELSE 'requests' END,
        duration(max(since))),
    least(max(since) / greatest((SELECT to_ns FROM klogger.recording), 1), 1) AS weight
FROM unfinished WHERE since > 100.0 * coalesce((SELECT quantile_disc(took, 0.99) FROM block_request
    WHERE took > 0), 0)
GROUP BY device ORDER BY max(since) DESC LIMIT 1;

-- warning
SELECT format('Left out, because events are missing in between: {:,} {}.', count,
    CASE count WHEN 1 THEN 'request' ELSE 'requests' END)
FROM block_unsure WHERE count > 0;
