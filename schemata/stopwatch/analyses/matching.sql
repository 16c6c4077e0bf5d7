-- SPDX-License-Identifier: GPL-2.0-only
-- title: What was matched
-- question: Which events found no partner, and which pairs are doubtful?
-- order: 40
-- events: START, STOP, STOP_ELSEWHERE
-- include: _pair
-- combine: sum
-- column action: action
-- column starts [count]: START in the log
-- column stops [count]: STOP in the log
-- column pairs [count]: pairs that were counted
-- column torn [count]: pairs with lost events in between, left out
-- column no_stop [count]: START without a STOP: still under way at the end, or never ended
-- column no_start [count]: STOP without a START: begun before the log, or by a thread that is not
--     recorded
-- column negative [count]: pairs that took less than the own cost that is subtracted
-- column crossed [count]: pairs that began and ended on different CPUs
-- column clock [ns, apart]: bound for the difference of two CPUs' clocks, from the shortest pairs
--     that crossed to and fro; empty if none crossed both ways
-- note: A pair that crossed CPUs compares two clocks. As no action ends before it begins, the
--     shortest pair from CPU A to B, and from B to A, bound how far the two clocks can be apart.
-- empty: the log has neither START nor STOP

CREATE TEMP TABLE matching_crossed AS
SELECT site, from_cpu, to_cpu, min(raw) AS least, count(*) AS pairs
FROM pair WHERE NOT torn AND from_cpu <> to_cpu GROUP BY site, from_cpu, to_cpu;
-- For each two CPUs both bounds, of whatever action; the worst of them all.
CREATE TEMP TABLE matching_clock AS
WITH way AS (SELECT from_cpu, to_cpu, min(least) AS least FROM matching_crossed
    GROUP BY from_cpu, to_cpu)
SELECT site, CASE WHEN count(*) = count(back.least) THEN max(greatest(way.least,
    back.least)) END AS error
FROM matching_crossed AS c JOIN way USING (from_cpu, to_cpu)
LEFT JOIN way AS back ON way.from_cpu = back.to_cpu AND way.to_cpu = back.from_cpu
GROUP BY site;

-- table
SELECT l.action, l.starts, l.stops, l.pairs - coalesce(p.torn, 0) AS pairs,
    coalesce(p.torn, 0) AS torn, l.no_stop, l.no_start, coalesce(p.negative, 0) AS negative,
    coalesce(p.crossed, 0) AS crossed, c.error AS clock
FROM pair_lone AS l
LEFT JOIN (SELECT site, count(*) FILTER (torn) AS torn,
    count(*) FILTER (ns < 0 AND NOT torn) AS negative,
                  count(*) FILTER (from_cpu <> to_cpu AND NOT torn) AS crossed FROM pair
                  GROUP BY site) AS p USING (site)
LEFT JOIN matching_clock AS c USING (site)
ORDER BY l.starts DESC, l.action;
