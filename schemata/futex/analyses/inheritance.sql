-- SPDX-License-Identifier: GPL-2.0-only
-- title: Priority inheritance
-- question: Which threads run with the priority of one that waits for them, and for how long?
-- order: 16
-- events: BOOST
-- include: _futex
-- picture: matrix x=waiter y=holder size=times
-- column holder: thread that inherits
-- column waiter: thread from which it inherits
-- column times [count, bar]: how often
-- column own: priority of the holder
-- column inherited: priority that it inherits
-- column lasted [ns]: time with that priority, of all times
-- column max [ns]: the longest time
-- note: Locks of the kernel that inherit priorities are seen as well.
-- empty: no thread in scope inherited a priority

-- Until it inherits from another one, or from none.
CREATE TEMP TABLE inheritance_span AS
SELECT pid, waiter, own, prio, NULL AS place, time AS from_ns,
    lead(time) OVER (PARTITION BY pid ORDER BY time, serial) AS to_ns
FROM BOOST;
CREATE TEMP TABLE inheritance AS
SELECT pid, waiter, own, prio, max(from_ns) AS time, count(*) AS times,
    least(sum(ns), 9223372036854775807)::BIGINT AS lasted, max(ns) AS max
FROM (
    SELECT s.*, coalesce(s.to_ns, r.to_ns) - s.from_ns AS ns
    FROM klogger.broken('inheritance_span', ['BOOST']) AS s, klogger.recording AS r
) WHERE waiter > 0 AND prio < own AND NOT broken GROUP BY pid, waiter, own, prio;

-- table
SELECT thread(pid, time) AS holder, thread(waiter, time) AS waiter, times,
    futex_prio(own) AS own, futex_prio(prio) AS inherited, lasted, max
FROM inheritance ORDER BY lasted DESC, holder, waiter, inherited;

-- picture
SELECT thread(pid, time) AS holder, thread(waiter, time) AS waiter, times
FROM inheritance ORDER BY times DESC, holder, waiter LIMIT 60;

-- finding
SELECT format('{} inherited the priority {} for {}.', thread(arg_max(pid, lasted), max(time)),
    futex_prio(arg_max(prio, lasted)), duration(max(lasted)))
FROM inheritance HAVING count(*) > 0;
