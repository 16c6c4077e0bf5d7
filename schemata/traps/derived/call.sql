-- SPDX-License-Identifier: GPL-2.0-only
-- title: System calls
-- question: Which system call did which thread make, when, and how long was it in it?
-- events: SYS_IN, SYS_OUT
-- costs: SYS_IN
-- include: _call
-- column from_ns [ns]: when it entered the kernel
-- column to_ns [ns]: when it returned
-- column ns [ns]: in between, without what logging took, as far as the log says how much that is
-- column pid: thread
-- column program: name of the thread when it returned
-- column call: number of the system call on that machine
-- column name: its name
-- column result: what it returned; an error as a negative number
-- note: Only calls whose beginning and end are in the log, without missing events in between.

-- table
SELECT from_ns, time AS to_ns, ns::BIGINT AS ns, pid, program, id AS call,
    syscall(id) AS name, ret AS result
FROM klogger.with_program('call') ORDER BY from_ns, pid;
