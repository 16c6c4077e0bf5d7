-- SPDX-License-Identifier: GPL-2.0-only
-- title: Noise
-- question: How much do interrupts change the time that a fixed computation takes?
-- order: 10
-- events: LOOP_BEGIN, LOOP, IRQ_IN, IRQ_OUT, VEC_IN, VEC_OUT, SOFT_IN, SOFT_OUT, SCHEDIN, SCHEDOUT
-- include: ../../interrupt/analyses/_handler
-- include: _iteration
-- picture: cdf x=extra y=part colour=what zoom=ends
-- column what: iterations; as they were, without the timer's handlers, or without those of all
--     interrupts
-- column iterations [count]: how many there are
-- column min [ns]: the shortest
-- column p50 [ns]: half of them take no longer
-- column p99 [ns]: 99 of 100 take no longer
-- column max [ns]: the longest
-- column over_1 [share, bar]: part that takes over 1 % more than is usual in its block of
--     iterations
-- column over_5 [share]: part that takes over 5 % more
-- column over_50 [share]: part that takes over 50 % more
-- column spread: longest divided by shortest
-- column extra [ns]: longer than usual in its block; below 0, shorter
-- column part [share]: part of the iterations that are not longer
-- note: What is usual in a block is the median of its iterations without handlers. The loop is
--     calibrated before each block, but the CPU's speed may change after that.
-- note: Iterations in which another thread had the CPU are left out: that is the scheduler's doing.
-- note: What is removed is the handlers' own time. What they cost besides, in the caches, and on
--     the way there and back, stays: see `indirect`.
-- note: A soft interrupt TIMER, SCHED, RCU or HRTIMER counts as the timer's.
-- empty: no program logged LOOP while the log was recorded

CREATE TEMP VIEW noise_series AS
SELECT 1 AS rank, 'raw' AS what, raw AS ns, nominal, usual FROM iteration_kept
UNION ALL SELECT 2, 'without timer', raw - timer_ns, nominal, usual FROM iteration_kept
UNION ALL SELECT 3, 'clean', raw - all_ns, nominal, usual FROM iteration_kept;

-- table
SELECT what, count(*) AS iterations, min(ns) AS min, quantile_disc(ns, 0.5) AS p50,
    quantile_disc(ns, 0.99) AS p99,
       max(ns) AS max, avg((ns > 1.01 * usual)::INTEGER) AS over_1,
       avg((ns > 1.05 * usual)::INTEGER) AS over_5,
       avg((ns > 1.5 * usual)::INTEGER) AS over_50, round(max(ns) / nullif(min(ns), 0), 2) AS spread
FROM noise_series GROUP BY what ORDER BY any_value(rank);

-- picture
-- Points where the curve has risen by a five-hundredth; more at its ends, by decades. What is usual
-- in a block is 0: on an axis of whole iterations all curves would be one line, and a block in
-- which the CPU was slower would be another.
WITH beyond AS (
    SELECT rank, what, round(ns - usual)::BIGINT AS ns FROM noise_series
), placed AS (
    SELECT *, cume_dist() OVER (PARTITION BY what ORDER BY ns) AS part FROM beyond
), point AS (
    SELECT rank, what, max(ns) AS extra, max(part) AS part FROM placed
    GROUP BY rank, what, floor(part * 500), floor(50 * log10(least(part, 1 - part + 1e-9)))
)
SELECT what, extra, part FROM (
    SELECT rank, what, extra, part FROM point
    UNION ALL
    SELECT rank, what, min(ns), 0 FROM placed GROUP BY rank, what
)
ORDER BY rank, part;

-- finding
SELECT text, weight FROM (
    SELECT 1 AS rank, format('A computation of {}, usually {} without handlers, took up to {}; the '
                             'shortest {}. Without the time in handlers: up to {}, the shortest '
                             '{}.',
                             duration(max(nominal)), duration(median(usual)), duration(max(raw)),
                             duration(min(raw)), duration(max(raw - all_ns)),
                             duration(min(raw - all_ns))) AS text,
           sum(all_ns) / greatest(sum(raw), 1) AS weight
    FROM iteration_kept HAVING count(*) > 0
    UNION ALL
    SELECT 2, format('In {:,} of {:,} iterations another thread had the CPU, {} in all: these are '
                     'left out.',
                     count(*) FILTER (out_ns > 0), count(*), duration(sum(out_ns))),
           sum(out_ns) / greatest(sum(raw), 1)
    FROM iteration HAVING count(*) FILTER (out_ns > 0) > 0
)
ORDER BY rank;

-- warning
FROM iteration_warning UNION ALL FROM handler_warning;
