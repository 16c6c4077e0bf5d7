-- SPDX-License-Identifier: GPL-2.0-only
-- title: Tails
-- question: How long do the shortest, the usual and the longest take?
-- order: 15
-- events: START, STOP, STOP_ELSEWHERE
-- include: _pair
-- picture: cdf x=time y=part colour=action scale=log
-- column action: action
-- column pairs [count]: pairs of START and STOP
-- column min [ns]: the shortest
-- column p50 [ns]: half are not longer
-- column p90 [ns]: nine of ten are not longer
-- column p99 [ns]: 99 of 100 are not longer
-- column p999 [ns]: 999 of 1,000 are not longer
-- column max [ns]: the longest
-- column time [ns]: time from START to STOP
-- column part [share]: pairs that are not longer
-- note: The logger's own cost is subtracted, as far as the log says what it is.
-- empty: no START in the log has a STOP

-- table
SELECT action, pairs, q[1] AS min, q[2] AS p50, q[3] AS p90, q[4] AS p99, q[5] AS p999, q[7] AS max
FROM pair_sum ORDER BY pairs DESC, action;

-- picture
-- Eight points for each doubling, each exactly on the curve, and one where it begins.
WITH point AS (
    SELECT action, max(ns) AS time, min(ns) AS shortest, count(*) AS pairs
    FROM pair WHERE NOT torn GROUP BY action, floor(8 * log2(greatest(ns, 1)))
), curve AS (
    SELECT action, time, min(shortest) OVER whole AS shortest, sum(pairs) OVER whole AS pairs,
           sum(pairs) OVER (whole ORDER BY time) / sum(pairs) OVER whole AS part
    FROM point WINDOW whole AS (PARTITION BY action)
)
SELECT action, time, part FROM (
    SELECT pairs, action, time, part FROM curve
    UNION
    SELECT pairs, action, shortest, 0 FROM curve
)
ORDER BY pairs DESC, action, part;

-- warning
FROM pair_warning;
