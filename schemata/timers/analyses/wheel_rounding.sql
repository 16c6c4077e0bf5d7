-- SPDX-License-Identifier: GPL-2.0-only
-- title: The wheel's granularity
-- question: How much later do timers of the wheel fire because of its granularity, and how much
--     because they are late?
-- order: 40
-- events: HRTIMER_FIRED, HRTIMER_VAIN, WHEEL_FIRED, WHEEL_VAIN, WHEEL_CLOCK
-- include: _timers
-- picture: cdf x=ns y=part colour=what scale=log
-- combine: sum
-- column level [neither]: of the wheel: the longer the time-out, the higher
-- column granule [ns, max]: the granularity of that level: 1, 8, 64 ... jiffies
-- column fires [count, bar]: times that such timers fired
-- column rounded [ns, 0.5 of rounds]: half of them are put into a part of the wheel that is due no
--     later than this after the wanted time
-- column rounded_max [ns, max]: the most
-- column late [ns, 0.5 of lates]: half of them ran no later than this after that part was due
-- column late_max [ns, max]: the latest
-- column what: granularity or lateness, by level
-- column ns [ns]: time
-- column part [share]: timers with no more
-- note: A level has 64 parts. Time-outs of less than 63 jiffies are in level 0, of less than 504 in
--     level 1, and so on; the level is computed from the time-out, which is known of timers that
--     were armed while the log was recorded. A timer is never early, so even level 0 rounds up by a
--     jiffy.
-- note: Late against the promptest timer of the log: if all are late, so is the measure.
-- empty: no timer of the wheel that was armed while the log was recorded fired

CREATE TEMP TABLE timer_round AS
SELECT CASE WHEN asked < 63 THEN 0 ELSE least(floor(log2(asked / 63) / 3)::BIGINT + 1, 8) END
    AS level, allowed, beyond
FROM (
    SELECT greatest(held - late, 0) / getvariable('timer_jiffy_ns') AS asked, allowed, beyond
    FROM timer_fire WHERE wheel AND held > 0
);

-- table
SELECT level, (8 ** level)::BIGINT * getvariable('timer_jiffy_ns') AS granule, count(*) AS fires,
    quantile_disc(allowed, 0.5) AS rounded, max(allowed) AS rounded_max,
    quantile_disc(beyond, 0.5) AS late, max(beyond) AS late_max
FROM timer_round GROUP BY level ORDER BY level;

-- picture
WITH sample AS (
    SELECT format('level {}, granularity', level) AS series, 2 * level AS place,
        greatest(allowed, 1) AS ns
    FROM timer_round
    UNION ALL
    SELECT format('level {}, late', level), 2 * level + 1, greatest(beyond, 1) FROM timer_round
)
SELECT series AS what, ns, part FROM klogger.curve_of('sample', 4) ORDER BY place, what, part;

-- finding
SELECT format('Of the time that timers of the wheel fired after the wanted one, {:.0f} % is its '
              'granularity, and the rest lateness.', 100 * sum(allowed) / sum(allowed + beyond))
FROM timer_round HAVING sum(allowed + beyond) > 0;

-- warning
FROM timer_warning;

-- histogram
SELECT level, klogger.histogram_of(allowed) AS rounds, klogger.histogram_of(beyond) AS lates
FROM timer_round GROUP BY ALL;
