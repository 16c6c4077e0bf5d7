-- SPDX-License-Identifier: GPL-2.0-only
-- title: Effective quanta
-- question: How long does a program run before its CPU is given to another?
-- order: 10
-- events: SCHEDIN, SCHEDOUT
-- include: _quantum
-- picture: cdf x=quantum y=part colour=program scale=log
-- combine: sum
-- column program: program; the name of the thread when the quantum ended
-- column quanta [count]: effective quanta
-- column under_100us [share, bar, of quanta]: quanta shorter than 100 µs
-- column p50 [ns, 0.5 of each]: half of the quanta are shorter
-- column p90 [ns, 0.9 of each]: nine of ten are shorter
-- column max [ns, max]: the longest
-- column lengths [spark, each, sum]: how many quanta are how long: under 2 µs, 4 µs, and so on,
--     each bar twice as long, up to over 1 s
-- column quantum [ns, neither]: length of an effective quantum
-- column part [share]: quanta that are not longer
-- note: An effective quantum is the time from being chosen to run to the next switch on that CPU.
--     Interrupts within it count as a part of it. Idle is left out, and so are quanta that had
--     begun before the log, or lasted beyond its end.
-- note: The picture names the nine programs with the most CPU time or the most quanta, and draws
--     all others as one.
-- empty: no thread in scope was switched in and out while the log was recorded

-- table
SELECT program, quanta, under_100us, p[1] AS p50, p[2] AS p90, max, octaves(h) AS lengths
FROM (
    SELECT program, count(*) AS quanta, count(*) FILTER (ns < 100_000) / count(*) AS under_100us,
           quantile_disc(ns, [0.5, 0.9]) AS p, max(ns) AS max, histogram(octave(ns)) AS h
    FROM (SELECT program, to_ns - from_ns AS ns FROM quantum WHERE whole) GROUP BY program
)
ORDER BY quanta DESC, program;

-- picture
WITH sample AS (
    SELECT p.shown AS series, p.rank AS place, q.to_ns - q.from_ns AS ns
    FROM quantum AS q JOIN quantum_program AS p USING (program) WHERE q.whole
)
SELECT series AS program, ns AS quantum, part FROM klogger.curve_of('sample', 16)
ORDER BY place, program, part;

-- finding
WITH length AS (
    SELECT program, count(*) AS quanta,
        count(*) FILTER (to_ns - from_ns < 100_000) / count(*) AS under_100us,
           quantile_disc(to_ns - from_ns, 0.5) AS p50
    FROM quantum WHERE whole GROUP BY program
), short AS (
    SELECT program, quanta FROM length WHERE under_100us >= 0.9 ORDER BY quanta DESC, program
    LIMIT 6
)
SELECT 'At least 90 % of the effective quanta are shorter than 100 µs: '
    || string_agg(program, ', ' ORDER BY quanta DESC, program)
       || '.'
FROM short HAVING count(*) > 0
UNION ALL
(SELECT format('{} has the longest: {}.', program,
               CASE quanta WHEN 1 THEN 'its only quantum lasts ' || duration(p50)
                    ELSE format('half of its {:,} quanta last {} or more', quanta,
                        duration(p50)) END)
 FROM length ORDER BY p50 DESC, program LIMIT 1);

-- warning
FROM quantum_warning;

-- samples
SELECT program, to_ns AS time, to_ns - from_ns AS quantum FROM quantum WHERE whole;

-- histogram
SELECT program, klogger.histogram_of(to_ns - from_ns) AS each FROM quantum WHERE whole
GROUP BY program;
