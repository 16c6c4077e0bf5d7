-- SPDX-License-Identifier: GPL-2.0-only
-- title: Who wakes whom
-- question: Which threads wake which others, on the same CPU or another, and how long until these
--     can run?
-- order: 45
-- events: TRY_TO_WAKEUP, ADD_TO_RUNQ
-- picture: matrix x=woken_shown y=waker_shown size=times
-- combine: sum
-- column waker: the thread that was running when the other was woken; perhaps only interrupted by
--     what woke it
-- column woken: the thread that was woken
-- column times [count, bar]: wake-ups
-- column per_second [per_s, times/seconds]: in each second of the log
-- column from_interrupt [share, apart]: an interrupt, or work that it had put off, woke it while
--     the waker ran; empty: not known
-- column other_cpu [share, apart]: it was put on the queue of another CPU than the waker's
-- column until_runnable_p50 [ns, apart]: from the wake-up until it is on a run queue: half of them
--     are quicker
-- column until_runnable_p99 [ns, apart]: 99 of 100 are quicker
-- column waker_shown: wakes
-- column woken_shown: is woken
-- note: What the waker's CPU did is known of an idle CPU, and of all if the schema interrupt is
--     recorded as well: an interrupt that comes while a thread runs may wake another, and the
--     thread has nothing to do with it.
-- note: How long a thread then waits on the queue is said by wakeup_latency. Idle as a waker is an
--     interrupt, or a timer.
-- note: A thread that is woken while it still runs, or has been woken already, is not put on a
--     queue: its times are not counted as times to become runnable.
-- empty: no thread in scope was woken while the log was recorded

-- Of several wake-ups before one ADD_TO_RUNQ the last one did it.
CREATE TEMP TABLE waker_added AS
WITH added AS (
    SELECT a.pid, a.runq, a.time, w.time AS woken_at FROM ADD_TO_RUNQ AS a
    ASOF JOIN TRY_TO_WAKEUP AS w ON a.pid = w.pid AND a.time >= w.time WHERE a.is_new = 0
)
SELECT pid, NULL AS place, woken_at AS from_ns, min(time) AS to_ns, arg_min(runq, time) AS runq
FROM added GROUP BY pid, woken_at;
CREATE TEMP TABLE waker_until AS
FROM klogger.broken('waker_added', ['TRY_TO_WAKEUP', 'ADD_TO_RUNQ']);

-- Whether an interrupt woke it, if the log has the interrupts: then the latest event of a handler
-- on that CPU is its beginning.
SET VARIABLE waker_seen = (
    SELECT count(DISTINCT table_name) = 6 FROM information_schema.tables
    WHERE table_name IN ('IRQ_IN', 'IRQ_OUT', 'VEC_IN', 'VEC_OUT', 'SOFT_IN', 'SOFT_OUT'));
SET VARIABLE waker_edges = CASE WHEN getvariable('waker_seen') THEN
    'SELECT cpu, time, true AS hard, true AS begins FROM IRQ_IN
     UNION ALL SELECT cpu, time, true, false FROM IRQ_OUT
     UNION ALL SELECT cpu, time, true, true FROM VEC_IN UNION ALL SELECT cpu, time, true, false
     FROM VEC_OUT
     UNION ALL SELECT cpu, time, false, true FROM SOFT_IN
     UNION ALL SELECT cpu, time, false, false FROM SOFT_OUT'
    ELSE 'SELECT 0::SMALLINT AS cpu, 0::BIGINT AS time, true AS hard, true AS begins '
         'WHERE false' END;
CREATE TEMP TABLE waker_edge AS FROM query(getvariable('waker_edges'));
CREATE TEMP TABLE waker_wake AS
SELECT w.pid, w.waker, w.cpu, w.time, w.cpu AS place, least(h.time, s.time) AS from_ns,
    w.time AS to_ns,
       coalesce(h.begins, false) OR coalesce(s.begins, false) AS inside
FROM TRY_TO_WAKEUP AS w
ASOF LEFT JOIN (FROM waker_edge WHERE hard) AS h ON w.cpu = h.cpu AND w.time > h.time
ASOF LEFT JOIN (FROM waker_edge WHERE NOT hard) AS s ON w.cpu = s.cpu AND w.time > s.time;

CREATE TEMP TABLE waker_pair AS
WITH named AS (
    SELECT w.waker, w.pid, w.cpu, w.time, m.to_ns - m.from_ns AS ns, m.runq,
           CASE WHEN waker = 0 THEN true WHEN getvariable('waker_seen')
               AND NOT w.broken THEN inside END AS interrupt
    FROM klogger.broken('waker_wake',
        ['IRQ_IN', 'IRQ_OUT', 'VEC_IN', 'VEC_OUT', 'SOFT_IN', 'SOFT_OUT']) AS w
    LEFT JOIN (FROM waker_until WHERE NOT broken) AS m ON m.pid = w.pid AND m.from_ns = w.time
)
SELECT klogger.label(a.comm, waker) AS waker, klogger.label(b.comm, n.pid) AS woken,
    count(*) AS times,
       avg(interrupt::INTEGER) AS from_interrupt,
       count(*) FILTER (runq <> cpu) / nullif(count(runq), 0) AS other_cpu,
       quantile_disc(ns, [0.5, 0.99]) AS p
FROM named AS n LEFT JOIN klogger.thread AS a ON a.pid = n.waker
LEFT JOIN klogger.thread AS b ON b.pid = n.pid
GROUP BY ALL;
CREATE TEMP VIEW waker_shown AS
SELECT name, CASE WHEN row_number() OVER (ORDER BY sum(times) DESC, name) <= 11 THEN name
    ELSE 'other' END AS shown
FROM (SELECT waker AS name, times FROM waker_pair UNION ALL SELECT woken, times FROM waker_pair)
GROUP BY name;

-- table
SELECT waker, woken, times, times / nullif((SELECT (to_ns - from_ns) / 1e9 FROM klogger.recording),
    0) AS per_second, from_interrupt, other_cpu,
       p[1] AS until_runnable_p50, p[2] AS until_runnable_p99
FROM waker_pair ORDER BY times DESC, waker, woken;

-- picture
SELECT a.shown AS waker_shown, b.shown AS woken_shown, sum(times)::BIGINT AS times
FROM waker_pair AS w JOIN waker_shown AS a ON a.name = w.waker
JOIN waker_shown AS b ON b.name = w.woken
GROUP BY ALL ORDER BY times DESC, waker_shown, woken_shown;

-- finding
-- Who did it is said only where it is known: the thread that was running may have been interrupted
-- by what woke the other.
SELECT CASE WHEN from_interrupt >= 0.5 THEN
                format('Interrupts woke {} {} while {}, {}', woken, often, CASE waker
                    WHEN 'idle' THEN 'the CPU was idle' ELSE waker || ' ran' END, what)
                || CASE WHEN from_interrupt < 1 THEN format('; {:.0f} % of these {} did itself',
                    100 - 100 * from_interrupt, waker) ELSE '' END
            WHEN from_interrupt IS NOT NULL THEN
                format('{} woke {} {}, {}', waker, woken, often, what)
                || CASE WHEN from_interrupt > 0 THEN format('; {:.0f} % of these came from '
                                                            'interrupts',
                                                                100 * from_interrupt) ELSE '' END
            ELSE format('{} was woken {} while {} ran, {}; whether {} did it or an interrupt that '
                        'came then, -s interrupt would record',
                        woken, often, waker, what, waker) END || '.'
FROM (SELECT *, CASE times WHEN 1 THEN 'once' ELSE format('{:,} times', times) END AS often,
             format('{:.0f} a second, which is {:.0f} % of all wake-ups; {:.0f} % went to another '
                    'CPU', times * 1e9 / greatest(r.to_ns, 1),
                    100 * times / sum(times) OVER (), 100 * coalesce(other_cpu, 0)) AS what
      FROM waker_pair, klogger.recording AS r)
ORDER BY times DESC, waker, woken LIMIT 1;

-- warning
SELECT format('Left out of the times to become runnable, because events are missing in between: '
              '{:,} {}.', count(*),
              CASE count(*) WHEN 1 THEN 'wake-up' ELSE 'wake-ups' END)
FROM waker_until WHERE broken HAVING count(*) > 0;
