-- SPDX-License-Identifier: GPL-2.0-only
-- title: Who ends waits, by stack
-- question: Which programs and interrupts end the waits, and what was waited for there?
-- order: 40
-- events: BLOCKED, WOKEN, BACK
-- include: _waits
-- picture: flame x=total y=stack
-- combine: sum
-- column waker: what woke it: a program, or a kind of interrupt
-- column times [count]: waits
-- column total [ns, bar]: from leaving the CPU to being woken, of all threads together
-- column max [ns, max]: the longest
-- column stack: the waker, then the program that waited, with its functions and the kernel's
-- note: The waker ended the wait; what it did meanwhile is in 'klogger why LOG'.
-- empty: no thread in scope waited while the log was recorded

CREATE TEMP VIEW wakeups_of AS
SELECT pid, to_ns AS time, woken_ns - from_ns AS ns, stack, user_stack,
    CASE source WHEN 0 THEN comm(waker, woken_ns) ELSE wake_source(source) END AS waker
FROM wait;
CREATE TEMP VIEW wakeups_named AS FROM klogger.with_program('wakeups_of');
CREATE TEMP TABLE wakeups_stack AS
SELECT waker, list_concat([replace(waker, ';', ':') || ' wakes'], path) AS path, count(*) AS times,
    sum(ns)::BIGINT AS total, max(ns) AS max
FROM klogger.with_path('wakeups_named') GROUP BY waker, path;

-- table
SELECT waker, times, total, max, array_to_string(path, ';') AS stack
FROM wakeups_stack ORDER BY total DESC, waker, stack;

-- picture
FROM klogger.flame('wakeups_stack') ORDER BY total DESC, stack;
