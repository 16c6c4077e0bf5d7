-- SPDX-License-Identifier: GPL-2.0-only
-- title: Quanta
-- question: When did which thread have which CPU, and why did it lose it?
-- events: SCHEDIN, SCHEDOUT
-- include: _cause, _quantum
-- column from_ns [ns]: when it got the CPU; of the first ones, the beginning of the log
-- column to_ns [ns]: when it lost it; of the last ones, the end of the log
-- column ns [ns]: how long it had it
-- column cpu: which CPU
-- column pid: thread
-- column program: name of the thread at the end of the quantum
-- column state: state in which it left; NULL: it still had the CPU
-- column cause: preempted, sleeps, waits, ends or other
-- column next: thread that ran after it
-- column next_program: name of that one
-- column whole: both ends are in the log
-- note: Without the idle threads, and without quanta in which events are missing.

CREATE TEMP VIEW scheduler_quantum_next AS
SELECT *, next AS pid, to_ns AS time FROM (SELECT * RENAME (pid AS thread, program AS name)
    FROM quantum);
-- A text is made once for each state, of which there are few.
CREATE TEMP TABLE scheduler_quantum_state AS
SELECT state, task_state(state) AS text
FROM (SELECT DISTINCT state FROM quantum WHERE state IS NOT NULL);

-- table
SELECT from_ns, to_ns, to_ns - from_ns AS ns, cpu, thread AS pid, name AS program,
    text AS state, cause, next, program AS next_program, whole
FROM klogger.with_program('scheduler_quantum_next') LEFT JOIN switch_cause USING (state)
LEFT JOIN scheduler_quantum_state USING (state) ORDER BY from_ns, cpu;
