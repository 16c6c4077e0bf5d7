-- SPDX-License-Identifier: GPL-2.0-only
-- title: What it is made of
-- question: How much of an action is interrupts, waiting, and the action itself?
-- order: 30
-- events: START, STOP
-- include: _pair, _inside
-- picture: stacked x=share y=band colour=part
-- column action: action
-- column band: which of them; by length, from the shorter half to the longest thousandth
-- column pairs [count]: actions
-- column mean [ns]: mean length
-- column interrupts [ns]: of it, in interrupts and softirqs
-- column off_cpu [ns]: of it, without a CPU: waiting, or preempted; empty if the scheduler was not
--     recorded
-- column rest [ns]: of it, all else: the action itself, and what is not recorded
-- column share [share]: of the time of these actions
-- column part: what it is
-- note: Only of actions that begin and end in one thread. Record with -s stopwatch -s scheduler, or
--     waits are in the rest.
-- note: Page faults are in the rest: current kernels have a tracepoint where they begin, and none
--     where they end.
-- empty: the log has no action that began and ended in one thread

CREATE TEMP TABLE split AS
WITH placed AS (
    SELECT p.action, p.ns, coalesce(i.interrupts, 0) AS interrupts,
           CASE WHEN getvariable('inside_scheduled') THEN coalesce(i.off_cpu, 0) END AS off_cpu,
           CASE WHEN p.ns <= q[2] THEN 1 WHEN p.ns <= q[3] THEN 2 WHEN p.ns <= q[4] THEN 3
               WHEN p.ns <= q[5] THEN 4 ELSE 5 END AS step
    FROM pair AS p JOIN pair_quantile USING (site) LEFT JOIN inside AS i ON p.rowid = i.id
    WHERE p.site < 100 AND NOT p.torn
)
SELECT action, step, count(*) AS pairs, avg(ns) AS mean, avg(interrupts) AS interrupts,
    avg(off_cpu) AS off_cpu,
       avg(ns - interrupts - coalesce(off_cpu, 0)) AS rest
FROM placed GROUP BY action, step;
CREATE TEMP MACRO split_band(step) AS
['< 50 %', '50–90 %', '90–99 %', '99–99.9 %', '> 99.9 %'][step];

-- table
SELECT action, split_band(step) AS band, pairs, mean, interrupts, off_cpu, rest FROM split
ORDER BY action, step;

-- picture
WITH part AS (
    SELECT action, step, mean, unnest(['in interrupts', 'off its CPU', 'the rest']) AS part,
           unnest([interrupts, coalesce(off_cpu, 0), greatest(rest, 0)]) AS time
    FROM split
)
SELECT format('{}, {} ({})', action, split_band(step), duration(mean)) AS band, part,
       time / nullif(sum(time) OVER (PARTITION BY action, step), 0) AS share
FROM part ORDER BY action, step, part;

-- finding
SELECT format('{}: the longest 0.1 % took {} in the mean, {:.0f} % of it without a CPU and {:.0f} '
              '% in interrupts.', action,
              duration(mean), 100 * off_cpu / mean, 100 * interrupts / mean) AS finding
FROM split WHERE step = 5 AND off_cpu IS NOT NULL AND mean > 0 ORDER BY pairs * mean DESC LIMIT 1;

-- warning
FROM pair_warning;
