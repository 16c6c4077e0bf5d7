-- SPDX-License-Identifier: GPL-2.0-only
-- title: Waits
-- question: When did which thread have no CPU, why, and since when could it have had one again?
-- events: SCHEDIN, SCHEDOUT, ADD_TO_RUNQ
-- include: _cause
-- column from_ns [ns]: when it lost its CPU
-- column to_ns [ns]: when it got the next one
-- column ns [ns]: in between
-- column pid: thread
-- column program: name of the thread at the end of the wait
-- column cause: preempted, sleeps, waits or other
-- column queued_ns [ns]: of it, at the end: it could run, and waited for a CPU; NULL: not known
-- column from_cpu: CPU that it lost
-- column to_cpu: CPU that it got
-- note: Only waits that begin and end within the log, without missing events in between.

CREATE TEMP VIEW scheduler_wait_begin AS
SELECT pid AS key, 0 AS who, time, {'state': state, 'cpu': cpu} AS begun FROM SCHEDOUT
WHERE pid <> 0;
CREATE TEMP VIEW scheduler_wait_end AS
SELECT pid AS key, 0 AS who, time, cpu AS ended FROM SCHEDIN WHERE pid <> 0;
CREATE TEMP TABLE scheduler_wait_pair AS
SELECT key AS pid, NULL AS place, from_ns, to_ns, to_ns AS time, begun.state AS state,
    begun.cpu AS from_cpu, ended AS to_cpu
FROM klogger.pairs('scheduler_wait_begin', 'scheduler_wait_end')
WHERE from_ns IS NOT NULL AND to_ns IS NOT NULL;
CREATE TEMP TABLE scheduler_wait_seen AS
FROM klogger.broken('scheduler_wait_pair', ['SCHEDIN', 'SCHEDOUT', 'ADD_TO_RUNQ']);
DROP TABLE scheduler_wait_pair;
CREATE TEMP VIEW scheduler_wait_woken AS
SELECT w.*, CASE WHEN state = 0 THEN w.from_ns WHEN a.time >= w.from_ns THEN a.time END AS able_ns
FROM scheduler_wait_seen AS w ASOF LEFT JOIN ADD_TO_RUNQ AS a
    ON a.pid = w.pid AND w.to_ns >= a.time
WHERE NOT broken;

-- table
SELECT from_ns, to_ns, to_ns - from_ns AS ns, pid, program, cause, to_ns - able_ns AS queued_ns,
    from_cpu, to_cpu
FROM klogger.with_program('scheduler_wait_woken') JOIN switch_cause USING (state)
-- What comes after the end of a thread is another thread of the same number.
WHERE cause <> 'ends' ORDER BY from_ns, pid;
