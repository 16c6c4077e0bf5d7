-- SPDX-License-Identifier: GPL-2.0-only
-- title: Hand-off
-- question: How long does a thread that is woken from a wait for a lock need until it runs?
-- order: 35
-- events: WAIT, WAITED
-- include: _futex
-- picture: cdf x=took y=part colour=shown scale=log
-- combine: sum
-- column program: program of the thread that is woken
-- column times [count, bar]: waits in which it slept and was woken
-- column p50 [ns, 0.5 of each]: half of the times are shorter
-- column p99 [ns, 0.99 of each]: 99 of 100 are shorter
-- column max [ns, max]: the longest
-- column of_waiting [share, apart]: part of the time that these waits took
-- column shown: program
-- column took [ns]: time from being woken to running
-- column part [share]: times that are not longer
-- note: Times of more than 4.29 s count as 4.29 s.
-- note: The picture names the nine programs with the most waits, and draws all others as one.
-- empty: no thread in scope was woken from a wait for a lock

CREATE TEMP TABLE handoff_seen AS
SELECT pid, time, handoff::BIGINT AS took, ns FROM futex_wait WHERE handoff > 0 AND NOT broken;
CREATE TEMP TABLE handoff AS
SELECT program, took, ns FROM klogger.with_program('handoff_seen');

-- table
SELECT program, count(*) AS times, quantile_disc(took, 0.5) AS p50,
    quantile_disc(took, 0.99) AS p99, max(took) AS max,
    least(sum(took) / greatest(sum(ns), 1), 1) AS of_waiting
FROM handoff GROUP BY program ORDER BY times DESC, program;

-- picture
WITH ranked AS (
    SELECT program, row_number() OVER (ORDER BY count(*) DESC, program) AS rank
    FROM handoff GROUP BY program
), sample AS (
    SELECT CASE WHEN rank <= 9 THEN program ELSE 'other' END AS series, rank AS place, took AS ns
    FROM handoff JOIN ranked USING (program)
)
SELECT series AS shown, ns AS took, part FROM klogger.curve_of('sample', 8)
ORDER BY place, shown, part;

-- finding
SELECT format('Half of the threads that were woken ran within {}, 99 of 100 within {}.',
    duration(quantile_disc(took, 0.5)), duration(quantile_disc(took, 0.99)))
FROM handoff HAVING count(*) > 0;

-- histogram
SELECT program, klogger.histogram_of(took) AS each FROM handoff GROUP BY program;
