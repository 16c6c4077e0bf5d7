-- SPDX-License-Identifier: GPL-2.0-only
-- title: Late timers
-- question: How long after the wanted time do timers fire, by kind and owner?
-- order: 10
-- events: HRTIMER_FIRED, HRTIMER_VAIN, WHEEL_FIRED, WHEEL_VAIN, WHEEL_CLOCK
-- include: _timers
-- picture: cdf x=late y=part colour=kind scale=log
-- combine: sum
-- column kind: what the timer is for: the kind of sleep, or who offers such timers
-- column owner: the program that armed it
-- column fires [count, bar]: times that such timers fired
-- column p50 [ns, 0.5 of each]: half of them fired no later than this after the wanted time
-- column p99 [ns, 0.99 of each]: 99 of 100
-- column max [ns, max]: the latest
-- column allowed [ns, max]: so late the kernel was allowed to be, at most: the slack of the thread,
--     or the granularity of the wheel
-- column beyond [ns, max]: the most that one fired later than it was allowed
-- column lengths [spark, each, sum]: how many were how late: under 2 µs, 4 µs, and so on, each bar
--     twice as long, up to over 1 s
-- column late [ns]: time from the wanted one until the timer's function began
-- column part [share]: timers that were not later
-- note: Until the timer's function begins. A thread that it wakes runs later: see the schemata
--     scheduler and waits.
-- note: A timer that was armed for a time that had passed counts from when it was armed. One of the
--     wheel counts against the promptest one of the log.
-- empty: no timer that a recorded thread had armed fired while the log was recorded

-- table
SELECT kind, owner, fires, p[1] AS p50, p[2] AS p99, max, allowed, beyond, octaves(h) AS lengths
FROM (
    SELECT kind, owner, count(*) AS fires, quantile_disc(late, [0.5, 0.99]) AS p, max(late) AS max,
        max(allowed) AS allowed, max(beyond) AS beyond, histogram(octave(late)) AS h
    FROM timer_fire GROUP BY kind, owner
)
ORDER BY fires DESC, kind, owner;

-- picture
WITH ranked AS (
    SELECT kind, row_number() OVER (ORDER BY count(*) DESC, kind) AS rank FROM timer_fire
    GROUP BY kind
), sample AS (
    SELECT CASE WHEN rank <= 9 THEN kind ELSE 'other' END AS series, least(rank, 10) AS place,
        greatest(late, 1) AS ns
    FROM timer_fire JOIN ranked USING (kind)
)
SELECT series AS kind, ns AS late, part FROM klogger.curve_of('sample', 8)
ORDER BY place, kind, part;

-- finding
-- What an owner lost by it, of the recorded time.
WITH owned AS (
    SELECT owner, kind, count(*) AS fires, sum(beyond) AS ns, quantile_disc(beyond, 0.5) AS p50,
        max(beyond) AS max
    FROM timer_fire WHERE pid <> 0 GROUP BY owner, kind
)
SELECT format('{}, {}: {} fired, half of them {} or more later than allowed, the latest {}.', owner,
        kind, CASE WHEN fires = 1 THEN '1 timer' ELSE format('{:,} timers', fires) END,
        duration(p50), duration(max)),
    least(ns / greatest(to_ns, 1), 1) AS weight
FROM owned, klogger.recording WHERE p50 > 0 ORDER BY ns DESC, owner, kind LIMIT 3;

-- warning
FROM timer_warning;

-- samples
SELECT kind, owner, time, late AS p50 FROM timer_fire;

-- histogram
SELECT kind, owner, klogger.histogram_of(late) AS each FROM timer_fire GROUP BY ALL;
