-- SPDX-License-Identifier: GPL-2.0-only
-- title: Who asks for timers
-- question: Whose timers fire most often, and wake the CPUs?
-- order: 20
-- events: HRTIMER_FIRED, HRTIMER_VAIN, WHEEL_FIRED, WHEEL_VAIN, WHEEL_CLOCK
-- include: _timers
-- picture: bars x=per_second y=who
-- combine: sum
-- column owner: the program that armed it; the kernel: nobody but its own function did
-- column kind: what it is for
-- column calls: the function that it calls; of a delayed work that of the work
-- column fires [count]: times that it fired
-- column per_second [per_s, bar, apart]: in each second of the log
-- column cpus [count, max]: CPUs on which it fired
-- column typical [ns, 0.5 of each]: half of them had been armed no longer before
-- column who: owner and function
-- note: Each of them interrupts a CPU, or wakes it; several that are due at once share an
--     interrupt. powertop calls this wakeups per second.
-- empty: no timer that a recorded thread had armed fired while the log was recorded

-- table
SELECT owner, kind, calls, count(*) AS fires,
    count(*) / (greatest(max(to_ns), 1) / 1e9) AS per_second, count(DISTINCT cpu) AS cpus,
    quantile_disc(held, 0.5) FILTER (held > 0) AS typical
FROM timer_fire, klogger.recording GROUP BY owner, kind, calls
ORDER BY fires DESC, owner, kind, calls;

-- picture
SELECT owner || ': ' || calls AS who, count(*) / (greatest(max(to_ns), 1) / 1e9) AS per_second
FROM timer_fire, klogger.recording GROUP BY who ORDER BY per_second DESC, who LIMIT 20;

-- finding
-- Not the tick: that is there as long as a CPU is busy.
WITH owned AS (
    SELECT owner, count(*) AS fires, arg_max(calls, n) AS calls FROM (
        SELECT owner, calls, count(*) OVER (PARTITION BY owner, calls) AS n FROM timer_fire
        WHERE kind <> 'tick'
    ) GROUP BY owner
)
SELECT format('{} has the most timers that fire: {:.0f} a second, {:.0f} % of all but the tick, '
              'most of them by {}.', owner, fires / (greatest(to_ns, 1) / 1e9),
    100 * fires / (SELECT sum(fires) FROM owned), calls)
FROM owned, klogger.recording ORDER BY fires DESC, owner LIMIT 1;

-- warning
FROM timer_warning;

-- histogram
SELECT owner, kind, calls, klogger.histogram_of(held) AS each FROM timer_fire WHERE held > 0
GROUP BY ALL;
