-- SPDX-License-Identifier: GPL-2.0-only
-- title: Priority inversion
-- question: Which threads wait for a lock that a less important thread holds?
-- order: 15
-- events: WAIT, WAITED, WOKE, BOOST
-- include: _futex
-- picture: stacked x=waited y=pair colour=inherits
-- combine: sum
-- column program: program
-- column lock: its name and process; without a name process and address
-- column waiter: thread that waits
-- column priority: its own
-- column holder: thread that holds the lock when the other one begins to wait
-- column holder_priority: its own
-- column inherits: whether the holder inherits the waiter's priority
-- column waits [count]: such waits
-- column waited [ns, bar]: time in these waits
-- column p50 [ns, apart]: half of the waits took no longer
-- column max [ns, max]: the longest
-- column pair: waiter, and holder of the lock
-- note: Real time 99 is the most important priority, and nice -20 is above nice 19. The priority of
--     a thread is known if it waits, wakes others or inherits while it is recorded.
-- note: Which threads ran instead of the holder, the schema `scheduler` logs.
-- empty: no thread waited for a lock that a less important one is known to hold

CREATE TEMP TABLE inversion_known AS
SELECT tid AS pid, time, prio FROM WAIT UNION ALL SELECT tid, time, prio FROM WOKE
UNION ALL SELECT pid, time, own FROM BOOST;
-- That of the holder is what it has next, at the latest when it gives the lock back; or had last.
CREATE TEMP TABLE inversion AS
WITH held AS (
    SELECT * FROM futex_wait WHERE holder > 0 AND holder <> pid AND NOT broken AND to_ns IS NOT NULL
), later AS (
    SELECT h.*, k.prio AS later FROM held AS h ASOF LEFT JOIN inversion_known AS k
        ON k.pid = h.holder AND h.from_ns <= k.time
), known AS (
    SELECT l.*, coalesce(later, k.prio) AS holder_prio
    FROM later AS l ASOF LEFT JOIN inversion_known AS k ON k.pid = l.holder AND l.from_ns > k.time
)
SELECT tgid, lock, pid, prio, holder, holder_prio, max(time) AS time, count(*) AS waits,
    least(sum(ns), 9223372036854775807)::BIGINT AS waited, quantile_disc(ns, 0.5) AS p50,
    max(ns) AS max, bool_and(op IN (6, 11, 13)) AS inherits
FROM known WHERE prio < holder_prio GROUP BY tgid, lock, pid, prio, holder, holder_prio;

-- table
SELECT comm(pid, time) AS program, futex_name(tgid, lock, time) AS lock,
    thread(pid, time) AS waiter, futex_prio(prio) AS priority, thread(holder, time) AS holder,
    futex_prio(holder_prio) AS holder_priority,
    CASE WHEN inherits THEN 'yes' ELSE 'no' END AS inherits, waits, waited, p50, max
FROM inversion ORDER BY waited DESC, waiter, holder, lock;

-- picture
SELECT format('{} for {}', thread(pid, time), thread(holder, time)) AS pair,
    CASE WHEN inherits THEN 'yes' ELSE 'no' END AS inherits, waited
FROM inversion ORDER BY waited DESC, pair LIMIT 15;

-- finding
SELECT format('{} ({}) waited {} for {} ({}){}.', thread(pid, time), futex_prio(prio),
    duration(waited), thread(holder, time), futex_prio(holder_prio),
    CASE WHEN inherits THEN ', which inherited its priority'
        ELSE ': give the lock priority inheritance' END),
    least(waited / greatest((SELECT to_ns FROM klogger.recording), 1), 1) AS weight
FROM inversion ORDER BY waited DESC, pid, holder, lock LIMIT 3;
