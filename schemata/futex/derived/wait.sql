-- SPDX-License-Identifier: GPL-2.0-only
-- title: Waits for locks
-- question: Which thread waited for which lock of its program, when, and who woke it?
-- events: WAIT, WAITED
-- include: _futex
-- column from_ns [ns]: when it called the kernel to wait
-- column to_ns [ns]: when it returned; NULL: it had not
-- column ns [ns]: in between
-- column pid: thread
-- column tgid: process
-- column program: name of the thread when it began to wait
-- column lock: its name and process; without a name process and address
-- column site: function that waits: the first that is not the C library's; NULL: not known
-- column op: operation
-- column timed: it has a timeout
-- column holder: thread that held the lock; 0: not known
-- column asleep [ns]: of it, off the CPU
-- column result: what the call returned; the name of an error
-- column waker: thread that woke it; 0: nobody did
-- column handoff [ns]: from then until it ran
-- note: Without waits in which events are missing.

-- table
SELECT from_ns, to_ns, ns, pid, tgid, program, futex_name(tgid, lock, from_ns) AS lock, site,
    futex_operation(op) AS op, timed, holder, asleep, errno(result) AS result, waker, handoff
FROM klogger.with_program('futex_wait') LEFT JOIN (SELECT id AS stack, site FROM futex_site)
    USING (stack)
WHERE NOT broken ORDER BY from_ns, pid;
