-- SPDX-License-Identifier: GPL-2.0-only
-- title: Latest timers
-- question: Which timers fired latest, and what ran on their CPU meanwhile?
-- order: 15
-- events: HRTIMER_FIRED, HRTIMER_VAIN, WHEEL_FIRED, WHEEL_VAIN, WHEEL_CLOCK
-- include: _timers
-- picture: bars x=beyond y=which
-- column at [ns]: when it fired, from the log's start
-- column cpu: where
-- column owner: the program that armed it
-- column kind: what the timer is for
-- column calls: the function that it calls; of a delayed work that of the work
-- column late [ns]: after the time that was wanted
-- column beyond [ns, bar]: of these, more than the kernel was allowed
-- column ran: what had its CPU from when it had to fire until it did: programs, and for how much of
--     it; the rest is idle
-- column which: when, where, whose, and what for
-- note: What ran is known if the schema scheduler was recorded as well: record with
--     '-a -s timers,scheduler'. A program that ran did not keep the timer from firing, but what
--     interrupted it, or kept interrupts off, did; with '-a -s timers,interrupt' the report has
--     that too.
-- empty: no timer fired later than it was allowed to

CREATE TEMP TABLE timer_worst AS
SELECT time, cpu, timer, owner, kind, calls, late, beyond FROM timer_fire WHERE beyond > 0
ORDER BY beyond DESC, time, cpu, timer LIMIT 30;
CREATE TEMP TABLE timer_worst_ran AS
WITH met AS (
    SELECT w.time, w.cpu, w.timer, w.beyond, s.program,
        sum(least(s.to_ns, w.time) - greatest(s.from_ns, w.time - w.beyond))::BIGINT AS ns
    FROM timer_worst AS w JOIN klogger.cpu_span AS s
        ON s.cpu = w.cpu AND s.from_ns < w.time AND s.to_ns > w.time - w.beyond
    GROUP BY ALL
)
SELECT time, cpu, timer, string_agg(format('{} {:.0f} %', program, 100 * ns / beyond), ', '
    ORDER BY ns DESC, program) AS ran
FROM met GROUP BY time, cpu, timer;
SET VARIABLE timer_with_cpu = (SELECT count(*) > 0 FROM klogger.cpu_span);

-- table
SELECT time AS at, cpu, owner, kind, calls, late, beyond,
    CASE WHEN getvariable('timer_with_cpu') THEN coalesce(ran, 'idle') END AS ran
FROM timer_worst LEFT JOIN timer_worst_ran USING (time, cpu, timer)
ORDER BY beyond DESC, time, cpu;

-- picture
SELECT format('{} CPU {} {}: {}', duration(time), cpu, owner, kind) AS which, beyond
FROM timer_worst ORDER BY beyond DESC, time, cpu LIMIT 20;

-- finding
SELECT format('The latest timer fired {} later than it had to, {} after the log began on CPU {}: '
              '{} ({}){}.', duration(beyond), duration(time), cpu, owner, kind,
    CASE WHEN NOT getvariable('timer_with_cpu') THEN ''
        ELSE '; ' || coalesce('the CPU had ' || ran, 'the CPU was idle') || ' meanwhile' END),
    least(beyond / greatest(to_ns, 1), 1) AS weight
FROM timer_worst LEFT JOIN timer_worst_ran USING (time, cpu, timer), klogger.recording
ORDER BY beyond DESC, time, cpu LIMIT 1;

-- warning
FROM timer_warning;
