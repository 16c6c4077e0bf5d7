-- SPDX-License-Identifier: GPL-2.0-only
-- title: What a switch costs
-- question: How long does a call of the scheduler take, and with how many threads on the queue?
-- order: 10
-- events: SCHED_ENTER, CPU_SWITCH, SCHED_LEAVE, NR_RUNNING
-- costs: SCHED_ENTER, CPU_SWITCH
-- include: _call
-- picture: cdf x=cost y=part colour=what scale=log
-- column what: kind of call; one that switched, its two parts, and one that did not switch
-- column queued: threads on the CPU's run queue when the scheduler was called, with the one that
--     called
-- column calls [count, bar]: calls of the scheduler
-- column mean [ns]: average, without the longest 0.1 %
-- column sd [ns]: standard deviation, without the longest 0.1 %
-- column p50 [ns]: half of the calls are shorter
-- column p99 [ns]: 99 of 100 are shorter
-- column max [ns]: the longest
-- column cost [ns]: time in the scheduler
-- column part [share]: calls that do not take longer
-- note: Choosing is the time from SCHED_ENTER to the switch; changing is the rest, until the
--     scheduler returns in the other thread. Lost caches are not in it: the thread pays for them
--     later.
-- note: Each event of another schema that is logged in between is a part of the time, and so is an
--     interrupt. The longest 0.1 %, mostly calls that an interrupt or the hypervisor cut in two,
--     are left out of mean and standard deviation.
-- note: The kernel keeps a thread on the queue for a while after it has gone to sleep, and counts
--     it.
-- empty: no call of the scheduler is in the log; kernels before 6.15 cannot report them
--     (sched_entry_tp, sched_exit_tp)

CREATE TEMP TABLE switch_cost_group AS
SELECT what, place, call_group(queued) AS queued, coalesce(min(queued), 1_000_000) AS rank,
    count(*) AS calls,
       quantile_disc(ns, [0.5, 0.99, 0.999]) AS p, max(ns) AS max
FROM call_part GROUP BY what, place, call_group(queued)
UNION ALL
SELECT what, place, 'any', -1, count(*), quantile_disc(ns, [0.5, 0.99, 0.999]), max(ns)
FROM call_part GROUP BY what, place;
CREATE TEMP TABLE switch_cost_mean AS
SELECT what, queued, avg(ns) AS mean, stddev_samp(ns) AS sd FROM (
    SELECT c.what, g.queued, c.ns FROM call_part AS c
    JOIN switch_cost_group AS g ON c.what = g.what AND g.queued = call_group(c.queued)
    WHERE c.ns <= g.p[3]
    UNION ALL
    SELECT c.what, g.queued, c.ns FROM call_part AS c
    JOIN switch_cost_group AS g ON c.what = g.what AND g.queued = 'any' WHERE c.ns <= g.p[3]
) GROUP BY what, queued;

-- table
SELECT what, queued, calls, mean, sd, p[1] AS p50, p[2] AS p99, max
FROM switch_cost_group JOIN switch_cost_mean USING (what, queued) ORDER BY rank >= 0, place, rank;

-- picture
WITH sample AS (SELECT what AS series, place, ns FROM call_part)
SELECT series AS what, ns AS cost, part FROM klogger.curve_of('sample', 16) ORDER BY place, part;

-- finding
SELECT format('A switch takes {} ± {} in the kernel: {} to choose a thread, {} to change to it. A '
              'call that does not switch takes {}.',
              duration(s.mean), duration(s.sd), duration(c.mean), duration(g.mean),
              coalesce(duration(n.mean), 'none'))
FROM switch_cost_mean AS s, switch_cost_mean AS c, switch_cost_mean AS g
LEFT JOIN (SELECT mean FROM switch_cost_mean WHERE queued = 'any' AND what = 'no switch') AS n
    ON true
WHERE s.queued = 'any' AND s.what = 'switch' AND c.queued = 'any' AND c.what = 'choosing'
    AND g.queued = 'any' AND g.what = 'changing';

-- warning
FROM call_warning;
