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
WITH sample AS (
    SELECT action AS series, -s.pairs AS place, ns FROM pair AS p JOIN pair_sum AS s USING (action)
    WHERE NOT torn
)
SELECT series AS action, ns AS time, part FROM klogger.curve_of('sample', 8)
ORDER BY place, action, part;

-- warning
FROM pair_warning;
