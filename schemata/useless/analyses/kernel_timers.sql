-- SPDX-License-Identifier: GPL-2.0-only
-- title: Timers
-- question: Which functions do timers call, how often, and how regularly?
-- order: 25
-- events: KERNEL_TIMER
-- include: _timers
-- picture: bars x=per_second y=function
-- combine: sum
-- column function: what the timer calls
-- column whose: thread: it ends the sleep of a thread, or a program has set it; tick; or the
--     kernel's own
-- column kind: timer wheel, or high resolution; a deferrable timer wakes no idle CPU
-- column times [count]: expiries, on all CPUs
-- column per_second [per_s, bar, times/seconds]: in each second of the log
-- column period [ns, apart]: half of the gaps on one CPU are shorter
-- column steady [share, apart]: of the gaps, those that differ from the period by less than a tenth
-- note: Of the whole machine, whatever is recorded. D18 has those of the kernel's own.
-- empty: not recorded: --set kernel_timers=true; or no timer expired

CREATE TEMP TABLE kernel_timers_gap AS
SELECT coalesce(fn_symbol, hex(fn)) AS function, time, high, may_wait,
    time - lag(time) OVER (PARTITION BY fn, cpu ORDER BY time) AS gap
FROM KERNEL_TIMER;
CREATE TEMP TABLE kernel_timers AS
WITH period AS (
    SELECT function, count(*) AS times, quantile_disc(gap, 0.5) AS period,
        bool_or(high) AS high, bool_and(may_wait) AS may_wait
    FROM kernel_timers_gap GROUP BY function
)
SELECT p.function, useless_whose(p.function) AS whose,
    CASE WHEN p.high THEN 'high resolution' ELSE 'timer wheel' END
        || CASE WHEN p.may_wait THEN ', deferrable' ELSE '' END AS kind,
    p.times, p.period, (SELECT count(*) FILTER (abs(g.gap - p.period) < 0.1 * p.period)
        / nullif(count(g.gap), 0) FROM kernel_timers_gap AS g
        WHERE g.function = p.function) AS steady
FROM period AS p;

-- table
SELECT function, whose, kind, times, times / (greatest(to_ns, 1) / 1e9) AS per_second, period,
    steady
FROM kernel_timers, klogger.recording ORDER BY times DESC, function;

-- picture
SELECT function, times / (greatest(to_ns, 1) / 1e9) AS per_second
FROM kernel_timers, klogger.recording ORDER BY times DESC, function LIMIT 15;

-- finding
SELECT format('Timers of the kernel''s own expired {:,} times, most often {}; those that threads '
    'wait for {:,} times.', (sum(times) FILTER (whose = 'kernel'))::BIGINT,
    arg_max(function, times) FILTER (whose = 'kernel'),
    coalesce(sum(times) FILTER (whose = 'thread'), 0)::BIGINT)
FROM kernel_timers HAVING count(*) FILTER (whose = 'kernel') > 0;
