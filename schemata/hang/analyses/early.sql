-- SPDX-License-Identifier: GPL-2.0-only
-- title: How early it could be known
-- question: What would reports after 1, 5 and 10 seconds have said, and how often in vain?
-- order: 50
-- events: SLEEPS, RUNS, FOUND, LOCK_WAIT, LOCK_GOT, FS_FROZEN, HANG
-- include: _hang
-- picture: stacked x=sleeps y=threshold colour=reports
-- column threshold: who sleeps in D for so long is reported; or the kernel's own reports
-- column reports [count]: sleeps that are reported
-- column dead_locks [count]: of them, in a circle, or waiting for one
-- column for_locks [count]: waiting for a lock or a frozen file system
-- column others [count]: waiting for a device, a child, the freezer or another event
-- column in_vain [count]: of those others, who went on before the log ended: false alarms
-- column first [ns]: when the first report comes
-- column earlier [ns]: before the kernel's first report; nothing if it reported nothing
-- column sleeps [count]: reports
-- note: The kernel looks at times that are kernel.hung_task_timeout_secs apart, so it reports one
--     to two such times after the sleep began; killable sleeps it does not report at all.
-- empty: no thread slept in D for 1 s, and the kernel reported none

CREATE TEMP TABLE early_report AS
SELECT t.seconds || ' s' AS threshold, t.seconds AS place, l.id,
    l.from_ns + t.seconds * 1_000_000_000::BIGINT AS moment,
    CASE WHEN c.cause = 'dead-lock' THEN 'dead-lock'
        WHEN c.cause IN ('frozen file system', 'holder', 'lock') THEN 'lock'
        ELSE 'other' END AS why, l.open
FROM hang_long AS l JOIN hang_chain AS c USING (id), (VALUES (1), (5), (10)) AS t(seconds)
WHERE l.ns >= t.seconds * 1_000_000_000::BIGINT
UNION ALL
SELECT 'the kernel', 100, l.id, h.time,
    CASE WHEN c.cause = 'dead-lock' THEN 'dead-lock'
        WHEN c.cause IN ('frozen file system', 'holder', 'lock') THEN 'lock' ELSE 'other' END,
    coalesce(l.open, true)
FROM (SELECT pid, min(time) AS time FROM HANG GROUP BY pid) AS h LEFT JOIN hang_long AS l
    ON l.pid = h.pid AND h.time >= l.from_ns AND h.time <= l.to_ns
LEFT JOIN hang_chain AS c USING (id);
CREATE TEMP TABLE early AS
SELECT threshold, place, count(*) AS reports, count(*) FILTER (why = 'dead-lock') AS dead_locks,
    count(*) FILTER (why = 'lock') AS for_locks, count(*) FILTER (why = 'other') AS others,
    count(*) FILTER (why = 'other' AND NOT open) AS in_vain, greatest(min(moment), 0) AS first
FROM early_report GROUP BY threshold, place;

-- table
SELECT e.* EXCLUDE (place), CASE WHEN h.time > e.first THEN h.time - e.first END AS earlier
FROM early AS e, (SELECT min(time) AS time FROM HANG) AS h ORDER BY place;

-- picture
SELECT threshold, why AS reports, count(*) AS sleeps FROM early_report
GROUP BY threshold, place, why ORDER BY place, why;

-- finding
SELECT format('A report after {} would have come {} before the kernel''s.', e.threshold,
    duration(h.time - e.first))
FROM early AS e, (SELECT min(time) AS time FROM HANG) AS h
WHERE h.time > e.first ORDER BY e.place LIMIT 1;

-- warning
FROM hang_warning;
