-- SPDX-License-Identifier: GPL-2.0-only
-- title: Jitter of periodic timers
-- question: How exactly do timers fire that come again and again?
-- order: 25
-- events: HRTIMER_FIRED, HRTIMER_VAIN, WHEEL_FIRED, WHEEL_VAIN, WHEEL_CLOCK
-- include: _timers
-- picture: cdf x=late y=part colour=shown scale=log
-- column owner: the program that armed it
-- column kind: what the timer is for
-- column period [ns]: from one wanted time to the next: half of the distances are shorter
-- column fires [count, bar]: times that it fired
-- column min [ns]: the least time after the wanted one
-- column mean [ns]: its mean
-- column max [ns]: the greatest
-- column std [ns]: its standard deviation
-- column distance [ns]: the greatest deviation of two that follow each other from the period
-- column shown: owner, kind and period
-- column late [ns]: time after the wanted one
-- column part [share]: fires that were not later
-- note: Periodic: at least 10 fires, and nine of ten wanted times are as far from the one before as
--     the median, but for a tenth. Sleeps count by thread, others by timer.
-- note: The paper of 2006 that brought these timers measured up to the thread that had slept, on a
--     CPU of 400 MHz: the README has its table.
-- empty: no timer fired periodically while the log was recorded

-- A thread has one sleep at a time, wherever on its stack that is.
CREATE TEMP TABLE timer_series AS
SELECT pid, owner, kind, calls, CASE WHEN calls IN ('hrtimer_wakeup', 'process_timeout') THEN 0
    ELSE timer END AS timer, time, late, time - late AS wanted
FROM timer_fire WHERE held > 0;
CREATE TEMP TABLE timer_distance AS
SELECT pid, owner, kind, calls, timer, time, late,
    CASE WHEN pid = pid_before AND timer = timer_before AND kind = kind_before
        AND calls = calls_before THEN wanted - wanted_before END AS distance
FROM (
    SELECT *, lag(pid) OVER () AS pid_before, lag(timer) OVER () AS timer_before,
        lag(kind) OVER () AS kind_before, lag(calls) OVER () AS calls_before,
        lag(wanted) OVER () AS wanted_before
    FROM (FROM timer_series ORDER BY pid, timer, kind, calls, time)
);
CREATE TEMP TABLE timer_periodic AS
SELECT d.pid, d.owner, d.kind, d.calls, d.timer, p.period, count(*) AS fires, min(late) AS min,
    avg(late)::BIGINT AS mean, max(late) AS max, stddev_pop(late)::BIGINT AS std,
    max(abs(distance - p.period)) AS distance
FROM timer_distance AS d JOIN (
    SELECT pid, owner, kind, calls, timer, quantile_disc(distance, 0.5) AS period
    FROM timer_distance GROUP BY ALL HAVING count(*) >= 10
) AS p USING (pid, owner, kind, calls, timer)
WHERE p.period > 0
GROUP BY ALL
HAVING count(*) FILTER (abs(distance - p.period) <= p.period / 10) >= 0.9 * count(distance);

-- table
SELECT owner, kind, period, fires, min, mean, max, std, distance FROM timer_periodic
ORDER BY fires DESC, owner, kind, period, min;

-- picture
WITH ranked AS (
    SELECT *, row_number() OVER (ORDER BY fires DESC, owner, kind, period, timer) AS rank
    FROM timer_periodic
), sample AS (
    SELECT format('{}, {}, {}', owner, kind, duration(period)) AS series, rank AS place,
        greatest(late, 1) AS ns
    FROM timer_series JOIN ranked USING (pid, owner, kind, calls, timer) WHERE rank <= 9
)
SELECT series AS shown, ns AS late, part FROM klogger.curve_of('sample', 8)
ORDER BY place, shown, part;

-- finding
SELECT format('{} has a period of {} ({}): it is {} late on average, {} at least and {} at most.',
    owner, duration(period), kind, duration(mean), duration(min), duration(max))
FROM timer_periodic WHERE pid <> 0 ORDER BY fires DESC, owner, kind, period, min LIMIT 1;

-- warning
FROM timer_warning;
