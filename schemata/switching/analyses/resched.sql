-- SPDX-License-Identifier: GPL-2.0-only
-- title: Preemption delay
-- question: How long after NEED_RESCHED does a CPU call the scheduler?
-- order: 30
-- events: NEED_RESCHED, SCHED_ENTER, SCHED_LEAVE
-- picture: cdf x=delay y=part colour=caller scale=log
-- combine: sum
-- column caller: what was interrupted: the idle thread, code in the kernel (preempted), or a thread
--     elsewhere (on its way to user space, or it called by itself)
-- column requests [count, bar]: times that it had NEED_RESCHED
-- column p50 [ns, 0.5 of each]: half of the delays are shorter
-- column p99 [ns, 0.99 of each]: 99 of 100 are shorter
-- column max [ns, max]: the longest
-- column over_1ms [share, of requests]: delays of more than 1 ms
-- column lengths [spark, each, sum]: how many delays are how long: under 2 µs, 4 µs, and so on,
--     each bar twice as long, up to over 1 s
-- column delay [ns]: from NEED_RESCHED to the next SCHED_ENTER on that CPU
-- column part [share]: delays that are not longer
-- note: Of several requests before one call, the first counts. A request that comes while the
--     scheduler runs already is answered by that call, and is left out.
-- note: A lazy request (one bit of the flags further) waits for the return to user space or for the
--     next tick. Long delays are kernel code that cannot be preempted, or a hypervisor
--     that had the CPU.
-- empty: no CPU called the scheduler after NEED_RESCHED; kernels before 6.15 cannot report it

-- Each SCHED_ENTER, SCHED_LEAVE and gap ends a turn. What counts is the first request of a turn
-- that a SCHED_ENTER of the same thread ends: requests between SCHED_ENTER and SCHED_LEAVE are
-- answered by the call that is under way.
CREATE TEMP TABLE resched_asked AS
WITH step AS (
    SELECT cpu, time, pid, NULL AS asked, true AS ends, preempt FROM SCHED_ENTER
    UNION ALL
    SELECT on_cpu, time, pid, time, false, NULL FROM NEED_RESCHED
    UNION ALL
    SELECT cpu, time, NULL, NULL, true, NULL FROM SCHED_LEAVE
    UNION ALL
    SELECT c.cpu, g.to_ns, NULL, NULL, true, NULL
    FROM (SELECT to_ns FROM klogger.gap
        WHERE event IS NULL OR event IN ('NEED_RESCHED', 'SCHED_ENTER', 'SCHED_LEAVE')) AS g,
         (SELECT DISTINCT cpu FROM SCHED_ENTER) AS c
), numbered AS (
    SELECT *, sum(ends::INTEGER) OVER (PARTITION BY cpu
        ORDER BY time, ends ROWS UNBOUNDED PRECEDING) - ends::INTEGER AS turn
    FROM step
), turned AS (
    SELECT cpu, turn, pid, min(asked) AS asked, min(time) FILTER (ends) AS called,
        any_value(preempt) AS preempt
    FROM numbered WHERE pid IS NOT NULL GROUP BY cpu, turn, pid
)
SELECT CASE WHEN pid = 0 THEN 'idle' WHEN preempt <> 0 THEN 'in the kernel'
    ELSE 'elsewhere' END AS caller,
       cpu AS place, asked AS from_ns, called AS to_ns
FROM turned WHERE called IS NOT NULL AND asked IS NOT NULL;
CREATE TEMP TABLE resched AS
SELECT caller, to_ns - from_ns AS ns
FROM klogger.broken('resched_asked', ['NEED_RESCHED', 'SCHED_ENTER', 'SCHED_LEAVE'])
WHERE NOT broken;

-- table
SELECT caller, requests, p[1] AS p50, p[2] AS p99, max, over_1ms, octaves(h) AS lengths
FROM (
    SELECT caller, count(*) AS requests, quantile_disc(ns, [0.5, 0.99]) AS p, max(ns) AS max,
           count(*) FILTER (ns > 1_000_000) / count(*) AS over_1ms, histogram(octave(ns)) AS h
    FROM resched GROUP BY caller
)
ORDER BY requests DESC, caller;

-- picture
WITH sample AS (SELECT caller AS series, 0 AS place, ns FROM resched)
SELECT series AS caller, ns AS delay, part FROM klogger.curve_of('sample', 8) ORDER BY caller, part;

-- finding
SELECT format('CPUs were told {:,} times to call the scheduler; half of them did so within {}, 99 '
              'of 100 within {}.',
              requests, duration(p[1]), duration(p[2]))
FROM (SELECT count(*) AS requests, quantile_disc(ns, [0.5, 0.99]) AS p FROM resched
    HAVING count(*) > 0);

-- histogram
SELECT caller, klogger.histogram_of(ns) AS each FROM resched GROUP BY caller;
