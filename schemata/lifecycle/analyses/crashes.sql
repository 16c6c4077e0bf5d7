-- SPDX-License-Identifier: GPL-2.0-only
-- title: Crashes
-- question: Which processes were ended by a signal, at which address and in which function?
-- order: 20
-- events: STARTED, RAN, ENDED, SIGNALLED, DELIVERED
-- include: _lives
-- column program: program
-- column pid: process
-- column signal: that ended it
-- column died [ns]: time of its end
-- column sender: who sent the signal, if another thread than its own was running
-- column address: of a fault, what was accessed
-- column tid: thread in which it took effect
-- column functions: where that thread was: the innermost functions of its user stack
-- column core: whether a core was dumped
-- column dump [ns]: if so, from the signal to the end of the thread: most of it writes the core
-- note: A signal that a program handles is not a crash, nor one that it ignores: see handled.
-- empty: no process was ended by a signal

CREATE TEMP TABLE crash AS
WITH fatal AS (
    SELECT id, program, tgid, to_ns, code & 127 AS sig, code & 128 > 0 AS core
    FROM life WHERE code & 127 > 0
), delivered AS (
    -- NULL: SIGKILL to a whole process is taken by each thread without a delivery.
    SELECT f.*, d.time AS delivered, d.address, d.tid, d.user_stack
    FROM fatal AS f ASOF LEFT JOIN (FROM DELIVERED WHERE action = 0) AS d
        ON d.tgid = f.tgid AND d.sig = f.sig AND f.to_ns >= d.time
)
SELECT c.*, s.sender, s.code AS cause, (
    SELECT min(e.time) FROM ENDED AS e WHERE e.pid = c.tid AND e.time >= c.delivered
) AS gone FROM delivered AS c ASOF LEFT JOIN (
    SELECT n.*, coalesce(b.tgid, n.pid) AS tgid FROM SIGNALLED AS n
    LEFT JOIN (SELECT pid, any_value(tgid) AS tgid FROM STARTED GROUP BY pid) AS b USING (pid)
) AS s ON s.tgid = c.tgid AND s.sig = c.sig AND c.to_ns >= s.time;
CREATE TEMP TABLE crash_shown AS
SELECT program, tgid AS pid, signal(sig) AS signal, to_ns AS died,
    CASE WHEN sender IS NOT NULL AND sender <> tid THEN thread(sender, to_ns) END AS sender,
    CASE WHEN address > 0 OR sig = 11 THEN hex(address) END AS address, tid,
    (SELECT array_to_string(list_slice(s.frames, 1, 5), ' < ') FROM klogger.stack AS s
        WHERE s.id = user_stack AND user_stack > 0) AS functions, core,
    CASE WHEN core THEN gone - delivered END AS dump
FROM crash;

-- table
FROM crash_shown ORDER BY died, pid;

-- finding
SELECT format('{}[{}] was ended by {}{}{}{}.', program, pid, signal,
    CASE WHEN sender IS NOT NULL THEN ', sent by ' || sender ELSE '' END,
    CASE WHEN functions IS NOT NULL THEN ' in ' || split_part(functions, ' < ', 1) ELSE '' END,
    CASE count(*) OVER () WHEN 1 THEN '' ELSE format(' (one of {:,})', count(*) OVER ()) END),
    1 / count(*) OVER () AS weight
FROM crash_shown ORDER BY died, pid LIMIT 1;
