-- SPDX-License-Identifier: GPL-2.0-only
-- title: Who wakes whom
-- question: Which threads wake which others, on the same CPU or another, and how long until these can run?
-- order: 45
-- events: TRY_TO_WAKEUP, ADD_TO_RUNQ
-- picture: matrix x=woken_shown y=waker_shown size=times
-- column waker: the thread that was running when the other was woken; perhaps only interrupted by what woke it
-- column woken: the thread that was woken
-- column times [count, bar]: wake-ups
-- column per_second [per_s]: in each second of the log
-- column other_cpu [share]: it was put on the queue of another CPU than the waker's
-- column until_runnable_p50 [ns]: from the wake-up until it is on a run queue: half of them are quicker
-- column until_runnable_p99 [ns]: 99 of 100 are quicker
-- column waker_shown: wakes
-- column woken_shown: is woken
-- note: How long a thread then waits on the queue is said by wakeup_latency. Waker 0 is idle: an interrupt, or a timer.
-- note: A thread that is woken while it still runs, or has been woken already, is not put on a queue: its times are not counted
--   as times to become runnable.
-- empty: no thread in scope was woken while the log was recorded

-- Of several wake-ups before one ADD_TO_RUNQ the last one did it.
CREATE TEMP TABLE waker_pair AS
WITH added AS (
    SELECT a.pid, a.runq, a.time, w.time AS woken_at FROM ADD_TO_RUNQ AS a
    ASOF JOIN TRY_TO_WAKEUP AS w ON a.pid = w.pid AND a.time >= w.time WHERE a.is_new = 0
), matched AS (
    SELECT pid, woken_at, min(time) AS time, arg_min(runq, time) AS runq FROM added GROUP BY pid, woken_at
), named AS (
    SELECT w.waker, w.pid, w.cpu, w.time, m.time - w.time AS ns, m.runq
    FROM TRY_TO_WAKEUP AS w LEFT JOIN matched AS m ON m.pid = w.pid AND m.woken_at = w.time
)
SELECT klogger.label(a.comm, waker) AS waker, klogger.label(b.comm, n.pid) AS woken, count(*) AS times,
       count(*) FILTER (runq <> cpu) / nullif(count(runq), 0) AS other_cpu, quantile_disc(ns, [0.5, 0.99]) AS p
FROM named AS n LEFT JOIN klogger.thread AS a ON a.pid = n.waker LEFT JOIN klogger.thread AS b ON b.pid = n.pid
GROUP BY ALL;
CREATE TEMP VIEW waker_shown AS
SELECT name, CASE WHEN row_number() OVER (ORDER BY sum(times) DESC, name) <= 11 THEN name ELSE 'other' END AS shown
FROM (SELECT waker AS name, times FROM waker_pair UNION ALL SELECT woken, times FROM waker_pair) GROUP BY name;

-- table
SELECT waker, woken, times, times / nullif((SELECT (to_ns - from_ns) / 1e9 FROM klogger.recording), 0) AS per_second, other_cpu,
       p[1] AS until_runnable_p50, p[2] AS until_runnable_p99
FROM waker_pair ORDER BY times DESC, waker, woken;

-- picture
SELECT a.shown AS waker_shown, b.shown AS woken_shown, sum(times)::BIGINT AS times
FROM waker_pair AS w JOIN waker_shown AS a ON a.name = w.waker JOIN waker_shown AS b ON b.name = w.woken
GROUP BY ALL ORDER BY times DESC, waker_shown, woken_shown;

-- finding
SELECT format('{} woke {} {}, {:.0f} a second, which is {:.0f} % of all wake-ups; {:.0f} % went to another CPU.',
              waker, woken, CASE times WHEN 1 THEN 'once' ELSE format('{:,} times', times) END, times * 1e9 / greatest(r.to_ns, 1), 100 * times / total, 100 * coalesce(other_cpu, 0))
FROM (SELECT *, sum(times) OVER () AS total FROM waker_pair), klogger.recording AS r ORDER BY times DESC, waker, woken LIMIT 1;
