-- SPDX-License-Identifier: GPL-2.0-only
-- title: What trimming removes
-- question: How do mean and deviation change if the longest are left out, and what happened in those?
-- order: 60
-- events: START, STOP, STOP_ELSEWHERE
-- include: _pair, _inside
-- column action: action
-- column trim: part that is left out, the longest
-- column removed [count]: pairs that are left out
-- column mean [ns]: mean of the rest
-- column sd [ns]: standard deviation of the rest
-- column interrupted [share]: of those left out, how many had an interrupt or a softirq of their thread in them
-- column off_cpu [share]: of those left out, in how many the thread lost its CPU; empty if the scheduler was not recorded
-- note: The paper's argument for leaving out the worst 0.1 %: these are mostly pairs with an interrupt in them, which says nothing of
--   the action. If `interrupted` is small, the tail is the action's own.
-- empty: no START in the log has a STOP

CREATE TEMP TABLE trim_effect AS
SELECT p.site, p.action, p.ns, i.interrupts > 0 AS interrupted, i.off_cpu > 0 AS off_cpu,
       row_number() OVER (PARTITION BY p.site ORDER BY p.ns, p.from_ns) AS place, count(*) OVER (PARTITION BY p.site) AS n
FROM pair AS p LEFT JOIN inside AS i USING (site, tid, from_ns, to_ns) WHERE NOT p.torn;

-- table
SELECT action, format('{} %', round(100 * level, 2)) AS trim, count(*) FILTER (place > ceil(n * (1 - level))) AS removed,
       avg(ns) FILTER (place <= ceil(n * (1 - level))) AS mean,
       coalesce(stddev_samp(ns) FILTER (place <= ceil(n * (1 - level))), 0) AS sd,
       avg(interrupted::INTEGER) FILTER (place > ceil(n * (1 - level))) AS interrupted,
       avg(off_cpu::INTEGER) FILTER (place > ceil(n * (1 - level))) AS off_cpu
FROM trim_effect, (SELECT unnest([0, 0.0001, 0.001, 0.01])::DOUBLE AS level)
GROUP BY site, action, level ORDER BY any_value(n) DESC, action, level;
