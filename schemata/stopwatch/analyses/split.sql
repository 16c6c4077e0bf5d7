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
-- column off_cpu [ns]: of it, without a CPU: waiting, or preempted; empty if the scheduler was not recorded
-- column rest [ns]: of it, all else: the action itself, and what is not recorded
-- column share [share]: of the time of these actions
-- column part: what it is
-- note: Only of actions that begin and end in one thread. Record with -s stopwatch -s scheduler, or waits are in the rest.
-- note: Page faults are in the rest: current kernels have a tracepoint where they begin, and none where they end.
-- empty: the log has no action that began and ended in one thread

CREATE TEMP TABLE split AS
WITH ranked AS (
    SELECT p.action, p.ns, p.raw, i.interrupts, i.off_cpu,
           percent_rank() OVER (PARTITION BY p.site ORDER BY p.ns, p.from_ns) AS rank
    FROM pair AS p JOIN inside AS i USING (site, tid, from_ns, to_ns) WHERE NOT p.torn
)
SELECT action, CASE WHEN rank < 0.5 THEN 1 WHEN rank < 0.9 THEN 2 WHEN rank < 0.99 THEN 3 WHEN rank < 0.999 THEN 4 ELSE 5 END AS step,
       count(*) AS pairs, avg(ns) AS mean, avg(interrupts) AS interrupts, avg(off_cpu) AS off_cpu,
       avg(ns - interrupts - coalesce(off_cpu, 0)) AS rest
FROM ranked GROUP BY action, step;
CREATE TEMP MACRO split_band(step) AS
['< 50 %', '50–90 %', '90–99 %', '99–99.9 %', '> 99.9 %'][step];

-- table
SELECT action, split_band(step) AS band, pairs, mean, interrupts, off_cpu, rest FROM split ORDER BY action, step;

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
SELECT format('The longest 0.1 % of {} took {} in the mean: {:.0f} % of that without a CPU, {:.0f} % in interrupts.', action, duration(mean),
              100 * off_cpu / mean, 100 * interrupts / mean) AS finding
FROM split WHERE step = 5 AND off_cpu IS NOT NULL AND mean > 0 ORDER BY pairs * mean DESC LIMIT 1;

-- warning
FROM pair_warning;
