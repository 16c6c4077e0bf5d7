-- SPDX-License-Identifier: GPL-2.0-only
-- call: one row for each call of the scheduler.
--
--   cpu, from_ns, to_ns   where, from SCHED_ENTER to SCHED_LEAVE
--   switched              whether it changed to another thread
--                         Times are without what logging took, as far as the log says how much
--                         that is.
--   pick                  ns until it changed to that thread; of a call that did not, all of its
--                         time
--   change                ns from there until it returned in that thread; NULL if it did not switch
--   queued                threads on the CPU's run queue when it was called; NULL if that is not
--                         known
--   from_idle             whether the idle thread called
--
-- A SCHED_LEAVE belongs to the latest SCHED_ENTER of its CPU if there is no other SCHED_LEAVE, and
-- no gap, in between. Else the call is left out, and counted in call_left_out. The two are logged
-- by different threads, and an interrupt may log between them, but no other call of the scheduler
-- on that CPU.

SET VARIABLE call_span = (SELECT to_ns + 2 FROM klogger.recording);
CREATE TEMP MACRO call_key(cpu, t) AS cpu::BIGINT * getvariable('call_span')::BIGINT
    + greatest(t, 0);

CREATE TEMP VIEW call_begin AS SELECT cpu AS key, 0 AS who, time, pid AS begun FROM SCHED_ENTER;
CREATE TEMP VIEW call_end AS SELECT cpu AS key, 0 AS who, time, switched <> 0 AS ended
FROM SCHED_LEAVE;
CREATE TEMP TABLE call_both AS
SELECT key AS place, key AS cpu, from_ns, to_ns, ended AS switched, begun = 0 AS from_idle
FROM klogger.pairs('call_begin', 'call_end') WHERE from_ns IS NOT NULL AND to_ns IS NOT NULL;
CREATE TEMP TABLE call_pair AS
SELECT *, call_key(cpu, to_ns) AS key, call_key(cpu, from_ns) AS begun
FROM klogger.broken('call_both', ['SCHED_ENTER', 'SCHED_LEAVE', 'CPU_SWITCH']) WHERE NOT broken;
DROP TABLE call_both;

-- The length of a queue is logged on the CPU that changes it, which may be another one. So after a
-- gap on any CPU it is unknown until it is logged again.
CREATE TEMP TABLE call_queue AS SELECT call_key(runq, time) AS key, time, queued::INTEGER AS queued
FROM NR_RUNNING;

-- A call that switched has a CPU_SWITCH in it. One without is a switch that the kernel did not
-- report.
CREATE TEMP TABLE call_queued AS
WITH changed AS (
    SELECT p.*, s.time AS changed
    FROM call_pair AS p ASOF LEFT JOIN (SELECT call_key(cpu, time) AS at, time FROM CPU_SWITCH) AS s
        ON p.key >= s.at
)
SELECT c.cpu, c.from_ns AS call_ns, c.to_ns AS left_ns, c.switched, c.from_idle,
       CASE WHEN c.switched THEN c.changed
           ELSE c.to_ns END - c.from_ns - cost_of('SCHED_ENTER') AS pick,
       CASE WHEN c.switched THEN c.to_ns - c.changed - cost_of('CPU_SWITCH') END AS change,
       CASE WHEN q.key >= call_key(c.cpu, 0) THEN q.queued END AS queued,
       NULL AS place, least(coalesce(q.time, c.from_ns), c.from_ns) AS from_ns, c.from_ns AS to_ns
FROM changed AS c ASOF LEFT JOIN call_queue AS q ON c.begun >= q.key
WHERE NOT c.switched OR c.changed BETWEEN c.from_ns AND c.to_ns;
CREATE TEMP TABLE call AS
SELECT cpu, call_ns AS from_ns, left_ns AS to_ns, switched, from_idle, pick, change, CASE
    WHEN NOT broken THEN queued END AS queued
FROM klogger.broken('call_queued', ['NR_RUNNING']);
DROP TABLE call_queued;

-- The probes are attached one after another, and the log ends in the middle of a call: what is not
-- between the first and the last of all three, and one call for each CPU, is not missed.
SET VARIABLE call_first = (SELECT max(t)
    FROM (SELECT min(time) AS t FROM SCHED_ENTER UNION ALL SELECT min(time) FROM CPU_SWITCH
                                               UNION ALL SELECT min(time) FROM SCHED_LEAVE));
SET VARIABLE call_last = (SELECT min(t)
    FROM (SELECT max(time) AS t FROM SCHED_ENTER UNION ALL SELECT max(time) FROM CPU_SWITCH
                                              UNION ALL SELECT max(time) FROM SCHED_LEAVE));
CREATE TEMP TABLE call_left_out AS
SELECT greatest((SELECT count(*) FROM SCHED_ENTER
    WHERE time BETWEEN getvariable('call_first') AND getvariable('call_last'))
                - count(*) FILTER (from_ns BETWEEN getvariable('call_first')
                    AND getvariable('call_last')),
                (SELECT count(*) FROM SCHED_LEAVE
                    WHERE time BETWEEN getvariable('call_first') AND getvariable('call_last'))
                - count(*) FILTER (to_ns BETWEEN getvariable('call_first')
                    AND getvariable('call_last'))) AS count
FROM call;
CREATE TEMP VIEW call_warning AS
SELECT format('Left out, because their beginning, their switch or their end is not in the log: '
              '{:,} calls.', count) AS warning
FROM call_left_out
WHERE count > CASE WHEN (SELECT count(*)
    FROM klogger.missing(['SCHED_ENTER', 'SCHED_LEAVE', 'CPU_SWITCH'])) > 0 THEN 0
    ELSE (SELECT count(DISTINCT cpu) FROM SCHED_LEAVE) END;
DROP TABLE call_pair;
DROP TABLE call_queue;

-- Parts of calls, and the groups of queue lengths that tables and pictures have.
CREATE TEMP MACRO call_group(queued) AS
    CASE WHEN queued IS NULL THEN 'not known' WHEN queued <= 3 THEN queued::VARCHAR
         ELSE format('{} to {}', (2 ** floor(log2(queued)))::INTEGER,
             (2 ** (floor(log2(queued)) + 1) - 1)::INTEGER) END;
CREATE TEMP VIEW call_part AS
SELECT cpu, queued, 'no switch' AS what, 4 AS place, pick AS ns FROM call WHERE NOT switched
UNION ALL SELECT cpu, queued, 'choosing', 2, pick FROM call WHERE switched
UNION ALL SELECT cpu, queued, 'changing', 3, change FROM call WHERE switched
UNION ALL SELECT cpu, queued, 'switch', 1, pick + change FROM call WHERE switched;
