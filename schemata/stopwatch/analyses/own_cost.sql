-- SPDX-License-Identifier: GPL-2.0-only
-- title: Own cost
-- question: What does the stopwatch itself take?
-- order: 50
-- events: START, STOP
-- include: _pair
-- picture: histogram x=shortest x2=longest y=times colour=what
-- column pairs [count]: empty pairs: two programs at one tracepoint, the first logs a START, the
--     second a STOP
-- column mean [ns]: mean of all
-- column sd [ns]: standard deviation of all
-- column trimmed [ns]: mean of all but the worst thousandth; this is subtracted from all other
--     times
-- column trimmed_sd [ns]: their standard deviation
-- column min [ns]: the shortest
-- column p50 [ns]: half are not longer
-- column p99 [ns]: 99 of 100 are not longer
-- column max [ns]: the longest
-- column shortest [ns]: time between the two readings of the clock
-- column longest [ns]: end of the bin
-- column times [count]: pairs
-- column what: what was timed
-- note: In it are the rest of the first program after its reading of the clock, the call of the
--     second one, and what that does before its own. Not in it is what either does outside of the
--     two readings: the action does not take longer by it, but the thread does.
-- note: The empty pairs were made while the same recording ran, before its command began.
-- empty: the log has no empty pairs: 'klogger stopwatch' makes them

-- table
SELECT count(*) AS pairs, avg(ns) AS mean, coalesce(stddev_samp(ns), 0) AS sd,
    any_value(c.mean) AS trimmed,
       any_value(c.sd) AS trimmed_sd, min(ns) AS min, quantile_disc(ns, 0.5) AS p50,
       quantile_disc(ns, 0.99) AS p99, max(ns) AS max
FROM pair_own, pair_cost AS c HAVING count(*) > 0;

-- picture
-- The worst thousandth would leave no room for the others.
WITH kept AS (
    FROM pair_own WHERE ns <= (SELECT quantile_disc(ns, 0.999) FROM pair_own)
), width AS (
    SELECT greatest(1, ceil((max(ns) - min(ns)) / 120)) AS width FROM kept
)
SELECT bin * width AS shortest, (bin + 1) * width AS longest, count(*) AS times,
    'empty pairs' AS what
FROM (SELECT floor(ns / width) AS bin, width FROM kept, width) GROUP BY bin, width ORDER BY bin;

-- finding
SELECT format('The stopwatch itself takes {} between its two readings of the clock (standard '
              'deviation {}, {:,} empty pairs).',
              duration(mean), duration(sd), pairs) AS finding
FROM pair_cost WHERE pairs > 1;
