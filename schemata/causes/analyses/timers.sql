-- SPDX-License-Identifier: GPL-2.0-only
-- title: Who sets timers
-- question: Which threads make the timer interrupt a CPU, how often, and at what cost?
-- order: 10
-- events: HRT_SET, HRT_IN, HRT_OUT, VEC_IN, VEC_OUT
-- include: ../../interrupt/analyses/_handler
-- picture: bars x=per_second y=who
-- column setter: who set the timer: a thread, or the timer itself, each time that it is due
-- column calls: the function that runs when it is due
-- column runs [count]: how often
-- column per_second [per_s, bar]: timers that ran, in each second of the log
-- column cost [ns]: time in timer interrupts; of one that serves several timers, an equal part for
--     each
-- column of_cpu [share]: that cost, as a part of one CPU's time
-- column late [ns]: half of them ran no later after their time than this
-- column late_max [ns]: the latest
-- column who: who set it; and what it calls
-- note: High-resolution timers only. A thread outside the recording has no name in the log, but its
--     number.
-- note: A timer that was set before the log began, or while events were lost, is "not known". One
--     that sets itself was first set by a thread: the finding names it, if that was while
--     the log was recorded.
-- empty: no timer was due while the log was recorded

-- Each run of a timer with what set it last, if no other setting may be missing; and with the timer
-- interrupt in which it ran.
CREATE TEMP TABLE timer_last AS
SELECT h.cpu, h.time, h.timer, h.fn, h.late, h.fn_symbol, s.pid, s.setter, s.time AS set_ns,
       NULL AS place, coalesce(s.time, h.time) AS from_ns, h.time AS to_ns
FROM HRT_IN AS h ASOF LEFT JOIN HRT_SET AS s ON h.timer = s.timer AND h.time > s.time;
CREATE TEMP VIEW timer_due AS
SELECT * REPLACE (CASE WHEN NOT broken THEN pid END AS pid, CASE
    WHEN NOT broken THEN set_ns END AS set_ns)
FROM klogger.broken('timer_last', ['HRT_SET']);
CREATE TEMP TABLE timer_use AS
WITH placed AS (
    SELECT d.*, CASE WHEN i.to_ns >= d.time THEN i.from_ns END AS interrupt,
        i.to_ns - i.from_ns AS ns
    FROM timer_due AS d ASOF LEFT JOIN (FROM handler WHERE name = 'local_timer') AS i
        ON d.cpu = i.cpu AND d.time >= i.from_ns
)
SELECT pid, time,
       CASE WHEN set_ns IS NULL THEN 'not known' WHEN setter = 0 THEN NULL
           WHEN setter = 1 THEN 'itself' ELSE 'an interrupt' END AS other,
       coalesce(regexp_replace(fn_symbol, '\+.*', ''), printf('0x%x', fn)) AS calls, late,
       CASE WHEN interrupt IS NULL THEN 0
           ELSE ns / count(*) OVER (PARTITION BY cpu, interrupt) END AS ns
FROM placed;
CREATE TEMP TABLE timer_who AS
SELECT coalesce(other, CASE WHEN starts_with(program, 'thread ') THEN program
    ELSE format('{}[{}]', program, pid) END) AS setter,
       other, calls, count(*) AS runs, sum(ns)::BIGINT AS cost, quantile_disc(late, 0.5) AS late,
       max(late) AS late_max
FROM (SELECT other, calls, late, ns, pid, klogger.label(t.comm, pid) AS program FROM timer_use
    LEFT JOIN klogger.thread AS t USING (pid))
GROUP BY ALL;

-- table
SELECT setter, calls, runs, runs / (greatest(to_ns, 1) / 1e9) AS per_second, cost,
    cost / greatest(to_ns, 1) AS of_cpu, late, late_max
FROM timer_who, klogger.recording ORDER BY runs DESC, setter, calls;

-- picture
SELECT setter || ': ' || calls AS who, runs / (greatest(to_ns, 1) / 1e9) AS per_second
FROM timer_who, klogger.recording ORDER BY runs DESC, setter, calls LIMIT 15;

-- finding
-- A storm: the timers of one setter that call one function are more than half of all that ran, and
-- more than 2,000 a second.
WITH first AS (
    SELECT regexp_replace(fn_symbol, '\+.*', '') AS calls, arg_min(pid, time) AS pid,
        min(time) AS time
    FROM HRT_SET WHERE setter = 0 GROUP BY ALL
), storm AS (
    SELECT w.*, r.to_ns, CASE WHEN w.setter = 'itself'
        AND f.pid IS NOT NULL THEN format(', first set by {}[{}]', comm(f.pid, f.time), f.pid)
                              ELSE '' END AS origin
    FROM timer_who AS w LEFT JOIN first AS f USING (calls), klogger.recording AS r
    WHERE runs > 2000 * (r.to_ns / 1e9) AND runs > (SELECT sum(runs) FROM timer_who) / 2
)
SELECT CASE setter WHEN 'itself' THEN format('Timer storm: a timer that sets itself ({}{}) runs '
                                             '{:,.0f} times a second, {:.0f} % of all; ',
                                             calls, origin, runs / (to_ns / 1e9),
                                             100 * runs / (SELECT sum(runs) FROM timer_who))
       ELSE format('Timer storm: {} sets {:,.0f} timers a second ({}), {:.0f} % of all; ', setter,
           runs / (to_ns / 1e9), calls,
                   100 * runs / (SELECT sum(runs) FROM timer_who)) END
       || format('their interrupts take {:.1f} % of a CPU.', 100 * cost / to_ns),
       cost / greatest(to_ns, 1) AS weight
FROM storm ORDER BY weight DESC LIMIT 3;

-- warning
FROM handler_warning;
