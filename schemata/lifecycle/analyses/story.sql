-- SPDX-License-Identifier: GPL-2.0-only
-- title: Before the crash
-- question: What happened in the recorded processes before the first crash?
-- order: 30
-- events: STARTED, RAN, ENDED, REAPED, SIGNALLED, DELIVERED
-- include: _lives
-- column before [ns]: so long before the end of the crashed process
-- column thread: whose event it is
-- column event: event
-- column what: its details
-- note: The last 200 events of this schema up to the end of the first process that dumped a core,
--     or would have: by SIGSEGV, SIGABRT and the like, not by SIGTERM or SIGKILL.
-- empty: no process crashed

CREATE TEMP TABLE story_end AS
SELECT min(to_ns) AS time FROM life WHERE code & 127 IN (3, 4, 5, 6, 7, 8, 11, 24, 25, 31);
CREATE TEMP TABLE story AS
SELECT s.time, who, event, what FROM (
    SELECT time, parent AS who, 'STARTED' AS event, thread(pid, time) AS what FROM STARTED
    UNION ALL SELECT time, pid, 'RAN', program FROM RAN
    UNION ALL SELECT time, pid, 'ENDED', lives_ending(code, time) FROM ENDED
    UNION ALL SELECT time, tid, 'REAPED', format('{}: {}', thread(child, time),
        lives_ending(status, time)) FROM REAPED
    UNION ALL SELECT time, sender, 'SIGNALLED', format('{} to {}{}', signal(sig), thread(pid, time),
        CASE result WHEN 0 THEN '' ELSE ': ' || outcome(result) END) FROM SIGNALLED
    UNION ALL SELECT time, tid, 'DELIVERED', format('{}: {}', signal(sig), action(action))
    FROM DELIVERED
) AS s, story_end WHERE s.time <= story_end.time ORDER BY s.time DESC LIMIT 200;

-- table
SELECT story_end.time - s.time AS before, thread(who, s.time) AS thread, event, what
FROM story AS s, story_end ORDER BY s.time, event;
