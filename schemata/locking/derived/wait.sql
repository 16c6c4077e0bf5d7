-- SPDX-License-Identifier: GPL-2.0-only
-- title: Waits for locks of the kernel
-- question: Which thread waited for which lock of the kernel, when, and where?
-- events: LOCK_BEGIN, LOCK_END
-- include: _waits
-- column from_ns [ns]: when it began to wait
-- column to_ns [ns]: when it got the lock, or gave up; of those that are open, the end of the log
-- column ns [ns]: in between
-- column spin_ns [ns]: of it, spinning
-- column pid: thread that waited, or that was interrupted by what waited; 0: idle
-- column program: name of the thread when it began to wait
-- column cpu: where it began
-- column lock: name of a variable, or address
-- column kind: spin lock, rwlock, mutex, rwsem, percpu rwsem or rt-mutex
-- column class: what the lock is for, as far as the stack says it
-- column caller: function that wanted it
-- column interrupt: it was wanted in an interrupt, as far as the stack says it
-- column open: the log ended before the wait did
-- note: Without waits in which events are missing.

CREATE TEMP VIEW locking_wait_thread AS SELECT *, tid AS pid, from_ns AS time FROM locking;

-- table
SELECT from_ns, to_ns, ns, spin_ns::BIGINT AS spin_ns, pid, program, cpu,
    data(lock, NULL, from_ns) AS lock, kind, class, caller, interrupt, open
FROM klogger.with_program('locking_wait_thread') ORDER BY from_ns, pid;
