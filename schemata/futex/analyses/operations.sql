-- SPDX-License-Identifier: GPL-2.0-only
-- title: Calls for locks
-- question: How many calls wait or wake, and how many of them are of no use?
-- order: 20
-- events: WAIT, WAITED, WOKE
-- include: _futex
-- combine: sum
-- column program: program
-- column operation: what the call asks for
-- column calls [count, bar]: how often
-- column slept [count]: waits in which the thread left its CPU
-- column again [count]: waits that the lock's value ended at once (EAGAIN)
-- column timeouts [count]: waits that ended by their timeout
-- column woken [count]: threads that were woken, or moved to another lock
-- column nobody [count]: calls that woke nobody
-- note: A lock that is free is taken without the kernel, and is not seen here.
-- empty: no thread in scope called the kernel for a lock

CREATE TEMP TABLE operations AS
SELECT pid, time, op, 1 AS waits, asleep, result, 0 AS wakes FROM futex_wait WHERE to_ns IS NOT NULL
UNION ALL SELECT tid, time, op, 0, 0, result, 1 FROM WOKE;

-- table
SELECT program, futex_operation(op) AS operation, count(*) AS calls,
    count(*) FILTER (waits = 1 AND asleep > 0) AS slept,
    count(*) FILTER (waits = 1 AND result = -11) AS again,
    count(*) FILTER (waits = 1 AND result = -110) AS timeouts,
    least(coalesce(sum(greatest(result, 0)) FILTER (wakes = 1), 0), 9223372036854775807)::BIGINT
        AS woken,
    count(*) FILTER (wakes = 1 AND result = 0 AND op <> 7) AS nobody
FROM klogger.with_program('operations') GROUP BY program, op
ORDER BY calls DESC, program, operation;

-- finding
SELECT format('{:,} calls wait, {:,} of them in vain; {:,} wake, {:,} of them nobody.',
    count(*) FILTER (waits = 1), count(*) FILTER (waits = 1 AND result = -11),
    count(*) FILTER (wakes = 1), count(*) FILTER (wakes = 1 AND result = 0 AND op <> 7))
FROM operations HAVING count(*) > 0;
