-- SPDX-License-Identifier: GPL-2.0-only
-- title: Stopwatch
-- question: How long does it take from START to STOP?
-- order: 10
-- events: START, STOP, STOP_ELSEWHERE
-- include: _pair
-- picture: histogram x=shortest x2=longest y=times colour=action scale=log
-- column action: action
-- column pairs [count]: pairs of START and STOP
-- column mean [ns]: mean, without the logger's own cost
-- column sd [ns]: standard deviation
-- column trimmed [ns]: mean of all but the worst thousandth
-- column trimmed_sd [ns]: standard deviation of all but the worst thousandth
-- column sd_with_own [ns]: the same, with the deviation of the subtracted own cost in it
-- column p50 [ns]: half are not longer
-- column shortest [ns]: time from START to STOP
-- column longest [ns]: end of the bin
-- column times [count]: pairs
-- note: A STOP belongs to the latest START of the same thread, key or CPU that has none yet, so
--     that nested ones match inside out. Pairs in which events were lost are left out.
-- note: What the logger itself takes between its two readings of the clock is subtracted, if the
--     log has empty pairs.
-- empty: no START in the log has a STOP

-- table
SELECT action, pairs, mean, sd, trimmed, trimmed_sd, sd_with_own, q[2] AS p50
FROM pair_sum ORDER BY pairs DESC, action;

-- picture
-- Eight bins for each doubling.
SELECT action, 2 ** (bin / 8) AS shortest, 2 ** ((bin + 1) / 8) AS longest, count(*) AS times
FROM (SELECT action, floor(8 * log2(greatest(ns, 1))) AS bin FROM pair WHERE NOT torn)
GROUP BY action, bin ORDER BY action, bin;

-- finding
SELECT format('{}: half take no more than {}, 99 of 100 no more than {}; the longest of {:,} took '
              '{}.',
              action, duration(q[2]), duration(q[4]), pairs, duration(q[7])) AS finding
FROM pair_sum ORDER BY total DESC, action LIMIT 1;

-- warning
FROM pair_warning;
