-- SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
-- title: Pairs of events
-- question: How long is it from an event to the one that ends what it begins, in the same thread?
-- order: 3
-- picture: bars x=total y=pair
-- column pair: the two events, with a * for the word in which they differ
-- column times [count]: how often the first was followed by the second
-- column total [ns, bar]: time in between, of all of them
-- column mean [ns]: of one
-- column p50 [ns]: half are shorter
-- column p99 [ns]: 99 of 100 are shorter
-- column max [ns]: the longest
-- column longest: thread of the longest
-- column unpaired [count]: events of the two that are not in a pair
-- note: Pairs by name: X_enter and X_exit, X_begin and X_end, X_start and X_done, and the like. In
--     one thread at a time: what one thread begins and another one, or an interrupt, ends is not
--     paired.
-- note: What logging took is in the times.
-- empty: no thread logged two events whose names make a pair

CREATE TEMP TABLE pairs_name AS
SELECT * FROM (VALUES $pairs) AS v(pair, first, second) WHERE pair IS NOT NULL;
CREATE TEMP VIEW pairs_begin AS
SELECT (pair, pid) AS key, pair AS who, time, NULL AS begun
FROM klogger.happened JOIN pairs_name ON event = first WHERE pid IS NOT NULL;
CREATE TEMP VIEW pairs_end AS
SELECT (pair, pid) AS key, pair AS who, time, NULL AS ended
FROM klogger.happened JOIN pairs_name ON event = second WHERE pid IS NOT NULL;
CREATE TEMP TABLE pairs_joined AS
SELECT key[1] AS pair, key[2] AS pid, NULL AS place, from_ns, to_ns
FROM klogger.pairs('pairs_begin', 'pairs_end');
CREATE TEMP TABLE pairs_whole AS
SELECT *, from_ns IS NOT NULL AND to_ns IS NOT NULL AND NOT broken AS whole, to_ns - from_ns AS ns
FROM klogger.broken('pairs_joined', [$capitals]);

-- table
SELECT pair, count(*) FILTER (whole) AS times, coalesce(sum(ns) FILTER (whole), 0)::BIGINT AS total,
    (sum(ns) FILTER (whole) / count(*) FILTER (whole))::BIGINT AS mean,
    quantile_disc(ns, 0.5) FILTER (whole) AS p50, quantile_disc(ns, 0.99) FILTER (whole) AS p99,
    max(ns) FILTER (whole) AS max,
    CASE WHEN bool_or(whole) THEN thread(arg_max(pid, (ns, -to_ns)) FILTER (whole),
        arg_max(to_ns, (ns, -to_ns)) FILTER (whole)) END AS longest,
    count(*) FILTER (NOT whole) AS unpaired
FROM pairs_whole GROUP BY pair ORDER BY total DESC, pair;

-- finding
SELECT format('Most time of all pairs of events was in {}: {}, {:,} times.', pair, duration(total),
    times), least(total / greatest(to_ns, 1), 1) AS weight
FROM klogger.recording, (
    SELECT pair, sum(ns)::BIGINT AS total, count(*) AS times FROM pairs_whole WHERE whole
    GROUP BY pair ORDER BY total DESC, pair LIMIT 1
);
