-- SPDX-License-Identifier: GPL-2.0-only
-- title: What trimming removes
-- question: How do mean and deviation change if the longest are left out, and what happened in
--     those?
-- order: 60
-- events: START, STOP, STOP_ELSEWHERE
-- include: _pair, _inside
-- column action: action
-- column trim: part that is left out, the longest
-- column removed [count]: pairs that are left out
-- column mean [ns]: mean of the rest
-- column sd [ns]: standard deviation of the rest
-- column interrupted [share]: of those left out, how many had an interrupt or a softirq of their
--     thread in them
-- column off_cpu [share]: of those left out, in how many the thread lost its CPU; empty if the
--     scheduler was not recorded
-- note: The paper's argument for leaving out the worst 0.1 %: these are mostly pairs with an
--     interrupt in them, which says nothing of the action. If `interrupted` is small, the tail is
--     the action's own.
-- empty: no START in the log has a STOP

-- What is left out of 1 %, with what was in it; the other levels are parts of that.
CREATE TEMP TABLE trim_effect AS
SELECT p.site, p.ns, coalesce(i.interrupts, 0) > 0 AS interrupted,
       CASE WHEN getvariable('inside_scheduled') THEN coalesce(i.off_cpu, 0) > 0 END AS off_cpu
FROM pair AS p JOIN pair_quantile USING (site) LEFT JOIN inside AS i ON p.rowid = i.id
WHERE NOT p.torn AND p.ns > q[4];

-- table
WITH level AS (
    SELECT site, unnest(['0 %', '0.01 %', '0.1 %', '1 %']) AS trim,
        unnest([q[7], q[6], q[5], q[4]]) AS most
    FROM pair_quantile
), kept AS (
    SELECT any_value(action) AS action, site, trim, any_value(most) AS most, avg(ns) AS mean,
        coalesce(stddev_samp(ns), 0) AS sd
    FROM pair JOIN level USING (site) WHERE NOT torn AND ns <= most GROUP BY site, trim
)
SELECT action, trim, count(t.ns) AS removed, any_value(mean) AS mean, any_value(sd) AS sd,
       CASE WHEN k.site < 100 THEN avg(interrupted::INTEGER) END AS interrupted,
       CASE WHEN k.site < 100 THEN avg(t.off_cpu::INTEGER) END AS off_cpu
FROM kept AS k LEFT JOIN trim_effect AS t ON k.site = t.site AND t.ns > k.most
GROUP BY k.site, action, trim ORDER BY k.site, trim;
