-- SPDX-License-Identifier: GPL-2.0-only
-- What all analyses of `lifecycle` share: each process with its beginning and its end.

-- A number is used again: a process is the latest of its number that began before.
CREATE TEMP TABLE lives_end AS
SELECT tgid, time, code, pid FROM ENDED
QUALIFY last AND row_number() OVER (PARTITION BY tgid, time ORDER BY last DESC, pid) = 1;
CREATE TEMP TABLE lives_thread AS
SELECT pid, any_value(tgid) AS tgid FROM (
    SELECT pid, tgid FROM STARTED
    UNION ALL SELECT pid, tgid FROM klogger.process WHERE from_ns <= 0
) GROUP BY pid;
-- What there was before the recording: those that have to do with an event, and their ancestors.
-- The recorder, which made the command, is none of them.
CREATE TEMP TABLE lives_before AS
WITH RECURSIVE old AS (
    SELECT pid, any_value(parent) AS parent FROM klogger.process
    WHERE pid = tgid AND from_ns <= 0 AND NOT recorder AND pid > 0
        AND pid NOT IN (SELECT pid FROM STARTED WHERE pid = tgid)
        AND pid NOT IN (SELECT pid FROM klogger.recorder)
    GROUP BY pid
), concerned AS (
    SELECT pid, parent FROM old WHERE pid IN (
        SELECT tgid FROM ENDED UNION SELECT pid FROM RAN
        UNION SELECT coalesce(t.tgid, s.parent) FROM STARTED AS s LEFT JOIN lives_thread AS t
            ON t.pid = s.parent)
    UNION
    SELECT old.pid, old.parent FROM concerned JOIN old ON old.pid = concerned.parent
)
SELECT pid, CASE WHEN parent IN (SELECT pid FROM old) THEN parent END AS parent FROM concerned;
CREATE TEMP TABLE lives_begin AS
SELECT s.pid AS tgid, s.time, coalesce(t.tgid, s.parent) AS parent
FROM STARTED AS s LEFT JOIN lives_thread AS t ON t.pid = s.parent
WHERE s.pid = s.tgid
UNION ALL
SELECT pid, 0, parent FROM lives_before;
CREATE TEMP TABLE lives AS
WITH ended AS (
    SELECT b.*, e.time AS to_ns, e.code,
        lead(b.time) OVER (PARTITION BY b.tgid ORDER BY b.time) AS again
    FROM lives_begin AS b ASOF LEFT JOIN lives_end AS e ON b.tgid = e.tgid AND b.time <= e.time
)
SELECT row_number() OVER (ORDER BY time, tgid) AS id, tgid, time AS from_ns, parent,
    CASE WHEN again IS NULL OR to_ns < again THEN to_ns END AS to_ns,
    CASE WHEN again IS NULL OR to_ns < again THEN code END AS code
FROM ended;

-- The program that it ran last, or its thread's name.
CREATE TEMP TABLE lives_ran AS
SELECT l.id, arg_max(r.program, r.time) AS program, count(*) AS execs
FROM lives AS l JOIN RAN AS r ON r.pid = l.tgid AND r.time >= l.from_ns
    AND (l.to_ns IS NULL OR r.time <= l.to_ns)
GROUP BY l.id;
CREATE TEMP TABLE life AS
SELECT l.*, coalesce(r.execs, 0) AS execs, coalesce(regexp_replace(r.program, '^.*/', ''),
    comm(l.tgid, coalesce(l.to_ns, l.from_ns))) AS program
FROM lives AS l LEFT JOIN lives_ran AS r USING (id);

CREATE TEMP MACRO lives_ending(code, to_ns) AS CASE WHEN to_ns IS NULL THEN 'still runs'
    WHEN code & 127 = 0 THEN format('exit {}', (code >> 8) & 255)
    ELSE signal(code & 127) || CASE WHEN code & 128 > 0 THEN ' (core dumped)' ELSE '' END END;
