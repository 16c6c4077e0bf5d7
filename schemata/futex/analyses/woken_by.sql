-- SPDX-License-Identifier: GPL-2.0-only
-- title: Who wakes whom
-- question: Which threads wake which others that wait for a lock?
-- order: 30
-- events: WAIT, WAITED
-- include: _futex
-- picture: matrix x=waiter y=waker size=times
-- combine: sum
-- column waker: thread that woke it
-- column waiter: thread that waited
-- column times [count, bar]: how often
-- column waited [ns]: time that these waits took
-- column locks [count, apart]: different locks
-- note: The waker is the thread that was running. What an interrupt woke, such as by a timeout, has
--     the thread that was interrupted, or none.
-- empty: no thread in scope was woken from a wait for a lock

CREATE TEMP TABLE woken_by AS
SELECT waker, pid, max(to_ns) AS time, count(*) AS times,
    least(sum(ns), 9223372036854775807)::BIGINT AS waited, count(DISTINCT lock) AS locks
FROM futex_wait WHERE waker > 0 AND result >= 0 AND NOT broken GROUP BY waker, pid;

-- table
SELECT thread(waker, time) AS waker, thread(pid, time) AS waiter, times, waited, locks
FROM woken_by ORDER BY times DESC, waited DESC, waker, waiter;

-- picture
SELECT thread(waker, time) AS waker, thread(pid, time) AS waiter, times
FROM woken_by ORDER BY times DESC, waker, waiter LIMIT 60;

-- finding
SELECT format('{} woke {} most often ({:,} times).', thread(arg_max(waker, times), max(time)),
    thread(arg_max(pid, times), max(time)), max(times))
FROM woken_by HAVING count(*) > 0;
