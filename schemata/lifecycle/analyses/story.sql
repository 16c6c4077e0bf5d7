-- SPDX-License-Identifier: GPL-2.0-only
-- title: Before the crash
-- question: What happened in its tree of processes before each crash?
-- order: 30
-- events: STARTED, RAN, ENDED, SIGNALLED, DELIVERED
-- include: _lives
-- column crash: program and process that crashed
-- column before [ns]: so long before the end of the crashed process
-- column thread: whose event it is
-- column event: event
-- column what: its details
-- note: Of the first five processes that dumped a core, or would have (by SIGSEGV, SIGABRT and the
--     like, not by SIGTERM or SIGKILL): the last 200 events up to their end, of all schemata that
--     were recorded.
-- note: What was last before the crash comes first.
-- note: The tree is the oldest ancestor that began while it was recorded, or ran a program then,
--     with all that it made.
-- empty: no process crashed

CREATE TEMP TABLE story_crash AS
SELECT id, tgid, program, to_ns FROM life WHERE code & 127 IN (3, 4, 5, 6, 7, 8, 11, 24, 25, 31)
ORDER BY to_ns, id LIMIT 5;
CREATE TEMP TABLE story_parent AS
SELECT c.id, p.id AS above FROM life AS c ASOF JOIN life AS p
    ON p.tgid = c.parent AND c.from_ns >= p.from_ns
WHERE p.from_ns > 0 OR p.execs > 0;
CREATE TEMP TABLE story_root AS
WITH RECURSIVE up AS (
    SELECT id AS crash, id, 0 AS steps FROM story_crash
    UNION ALL
    SELECT crash, above, steps + 1 FROM up JOIN story_parent AS p USING (id) WHERE steps < 100
)
SELECT crash, arg_max(id, steps) AS root FROM up GROUP BY crash;
CREATE TEMP TABLE story_tree AS
WITH RECURSIVE down AS (
    SELECT crash, root AS id, 0 AS steps FROM story_root
    UNION ALL
    SELECT crash, p.id, steps + 1 FROM down JOIN story_parent AS p ON p.above = down.id
    WHERE steps < 100
)
SELECT crash, l.tgid, l.from_ns, l.to_ns FROM down JOIN life AS l ON l.id = down.id;
-- With their threads.
CREATE TEMP TABLE story_thread AS
SELECT s.crash, coalesce(t.pid, s.tgid) AS pid, s.from_ns, coalesce(s.to_ns, c.to_ns) AS to_ns,
    c.to_ns AS until
FROM story_tree AS s JOIN story_crash AS c ON c.id = s.crash
LEFT JOIN (SELECT DISTINCT pid, tgid FROM STARTED UNION SELECT tgid, tgid FROM STARTED) AS t
    ON t.tgid = s.tgid;
-- What ends with a process is logged up to some moments after its end.
CREATE TEMP TABLE story_event AS
SELECT t.crash, t.until, h.time, h.cpu, h.serial, h.event, h.pid
FROM klogger.happened AS h JOIN story_thread AS t
    ON h.pid = t.pid AND h.time BETWEEN t.from_ns AND least(t.to_ns + 1_000_000, t.until)
QUALIFY row_number() OVER (PARTITION BY t.crash ORDER BY h.time DESC, h.serial DESC) <= 200;
-- By themselves: DuckDB plans names of threads that are asked of a union for each of its parts.
CREATE TEMP TABLE story_told AS FROM klogger.told('story_event');

-- table
SELECT format('{}[{}]', c.program, c.tgid) AS crash, s.until - s.time AS before,
    thread(s.pid, s.time) AS thread, s.event, s.what
FROM story_told AS s JOIN story_crash AS c ON c.id = s.crash
ORDER BY c.to_ns, c.id, s.time DESC, s.event;
