-- SPDX-License-Identifier: GPL-2.0-only
-- title: Cost of the timer interrupt
-- question: How long does one timer interrupt take, with the work that it puts off?
-- order: 30
-- events: VEC_IN, VEC_OUT, SOFT_IN, SOFT_OUT
-- costs: VEC_IN, SOFT_IN
-- include: _handler
-- picture: cdf x=length y=part colour=what scale=log
-- combine: sum
-- column cpu: CPU
-- column what: handler; the timer interrupt, or a soft interrupt that it may have raised
-- column runs [count]: how often
-- column mean [ns, of runs]: of one run, without what interrupted it
-- column sd [ns, apart]: standard deviation
-- column p50 [ns, bar, 0.5 of each]: half of the runs take no longer
-- column p99 [ns, 0.99 of each]: 99 of 100 runs take no longer
-- column max [ns, max]: the longest run
-- column length [ns]: time in the handler, without what interrupted it
-- column part [share]: part of the runs that are not longer
-- note: Soft interrupts TIMER, SCHED, RCU and HRTIMER are counted as the timer's, whatever raised
--     them.
-- note: Events of other schemata that log in a run add what they take.
-- empty: no timer interrupt came while the log was recorded

CREATE TEMP TABLE timer_run AS
SELECT cpu, name AS what, self_ns FROM handler
WHERE name IN ('local_timer', 'softirq TIMER', 'softirq SCHED', 'softirq RCU', 'softirq HRTIMER');

-- table
SELECT cpu, what, count(*) AS runs, avg(self_ns)::BIGINT AS mean, stddev_pop(self_ns)::BIGINT AS sd,
       quantile_disc(self_ns, 0.5) AS p50, quantile_disc(self_ns, 0.99) AS p99, max(self_ns) AS max
FROM timer_run GROUP BY cpu, what ORDER BY what, cpu;

-- picture
WITH sample AS (SELECT what AS series, 0 AS place, self_ns AS ns FROM timer_run)
SELECT series AS what, ns AS length, part FROM klogger.curve_of('sample', 8) ORDER BY what, part;

-- finding
WITH timer AS (
    SELECT count(*) AS runs, quantile_disc(self_ns, [0.5, 0.99]) AS p, sum(self_ns) AS ns,
        count(DISTINCT cpu) AS places
    FROM timer_run WHERE what = 'local_timer'
), later AS (
    SELECT coalesce(sum(self_ns), 0) AS ns FROM timer_run WHERE what <> 'local_timer'
)
SELECT format('Half of the {:,} timer interrupts took {} or less, 99 of 100 took {} or less; work '
              'put off adds {} to each.',
              runs, duration(p[1]), duration(p[2]), duration(later.ns / runs)),
       (timer.ns + later.ns) / (greatest(to_ns, 1) * places) AS weight
FROM timer, later, klogger.recording WHERE runs > 0;

-- warning
FROM handler_warning;

-- histogram
SELECT cpu, what, klogger.histogram_of(self_ns) AS each FROM timer_run GROUP BY cpu, what;
