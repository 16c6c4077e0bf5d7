-- SPDX-License-Identifier: GPL-2.0-only
-- include: _writeback

-- When each thread was last seen to go on.
CREATE TEMP TABLE writeback_later AS
SELECT tid, max(time) AS time FROM (
    SELECT pid AS tid, time FROM WB_RESUMED UNION ALL SELECT tid, time FROM DIRTY_PAGES
    UNION ALL SELECT tid, time FROM DIRTY_INODE UNION ALL SELECT tid, time FROM WB_PAGES
    UNION ALL SELECT tid, time FROM SYNC_CALL
    UNION ALL SELECT pid, to_ns FROM klogger.process
    WHERE to_ns < (SELECT to_ns FROM klogger.recording)
) GROUP BY tid;
CREATE TEMP TABLE writeback_span AS
SELECT r.pid, r.from_ns, r.time AS to_ns, 'page cache' AS layer,
    CASE kind WHEN 1 THEN 'paused: too many dirty pages'
        ELSE 'waits for a page under writeback' END AS what,
    nullif(r.device, 0)::UINTEGER AS device, nullif(r.inode, 0)::UBIGINT AS inode,
    -- A pause is for the next round of the flusher; a page was written by who wrote the file last.
    nullif(CASE kind WHEN 1 THEN f.tid ELSE w.tid END, r.pid) AS helper, true AS waits
FROM (SELECT *, time - writeback_big(took) AS from_ns FROM WB_RESUMED) AS r
ASOF LEFT JOIN WB_ROUND AS f ON f.device = r.device AND r.from_ns <= f.time
ASOF LEFT JOIN (FROM WB_PAGES WHERE inode > 0) AS w
    ON w.device = r.device AND w.inode = r.inode AND r.from_ns >= w.time
UNION ALL
-- Who was paused, or waits for a page, and did not run again.
SELECT b.tid, b.time, NULL, 'page cache', b.what, nullif(b.device, 0)::UINTEGER,
    nullif(b.inode, 0)::UBIGINT, NULL, true
FROM (
    SELECT tid, time, device, 0::UBIGINT AS inode, 'paused: too many dirty pages' AS what
    FROM DIRTY_PAUSE WHERE pause > 0
    UNION ALL SELECT tid, time, device, inode, 'waits for a page under writeback' FROM WB_WAIT
) AS b
LEFT JOIN writeback_later AS l USING (tid) WHERE b.time > coalesce(l.time, -1)
UNION ALL
SELECT tid, time - writeback_big(took), time, 'page cache',
    format('writes back {} {}', pages, CASE pages WHEN 1 THEN 'page' ELSE 'pages' END),
    nullif(device, 0)::UINTEGER, nullif(inode, 0)::UBIGINT, NULL, via <> 1
FROM WB_INODE WHERE took > 0;
