-- SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
-- title: Times in events
-- question: Which times do the events tell, how long are they, and of which threads?
-- order: 2
-- picture: bars x=total y=what
-- column what: event and field
-- column times [count]: events
-- column total [ns, bar]: of all of them
-- column mean [ns]: of one
-- column p50 [ns]: half are shorter
-- column p99 [ns]: 99 of 100 are shorter
-- column max [ns]: the longest
-- column longest: thread of the longest
-- column when [ns]: when the longest was logged, since the log's start
-- note: Fields in ns of schemata without analyses of their own; also those that are points in time.
-- empty: no event has a field in ns

CREATE TEMP TABLE times_each AS $fields;

-- table
SELECT what, count(*) AS times, sum(ns)::BIGINT AS total, (sum(ns) / count(*))::BIGINT AS mean,
    quantile_disc(ns, 0.5) AS p50, quantile_disc(ns, 0.99) AS p99, max(ns) AS max,
    CASE WHEN arg_max(pid, (ns, -time)) IS NOT NULL
        THEN thread(arg_max(pid, (ns, -time)), arg_max(time, (ns, -time))) END AS longest,
    arg_max(time, (ns, -time)) AS when
FROM times_each GROUP BY what ORDER BY total DESC, what;
