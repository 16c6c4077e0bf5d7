-- SPDX-License-Identifier: GPL-2.0-only
-- timer_fire: one row for each time that a timer fired.
--
--   time, cpu        when its function began, and where
--   timer, pid       which one; the thread that armed it, 0 if it is the idle thread or not known
--   owner            its program: its name when the timer fired
--   kind, calls      what it is for; the function that it calls, of a delayed work that of the work
--   wheel            it is one of the wheel
--   late             ns after the time that was wanted; if it was armed later than that, after then
--   allowed          ns of these that the kernel was allowed: the slack, the granularity of the
--                    wheel
--   beyond           ns of these that it was not
--   held             ns since it was armed; 0: not known
--   first            it was the CPU's next event when it was armed
--
-- timer_back: one row for each time that a timer was taken back before it fired: time, owner, kind,
-- calls, early (ns before the wanted time; NULL: not known), first, fate.

-- No time of a log is longer than 73 years, whatever damage may say.
CREATE TEMP MACRO timer_ns(x) AS
    greatest(least(x, 2305843009213693951), -2305843009213693951)::BIGINT;

-- The wheel counts jiffies. How long they are, and when the first one was, follows from when parts
-- of the wheel were due: the promptest of these defines 0.
CREATE TEMP VIEW timer_due AS
SELECT time, due::BIGINT AS due FROM WHEEL_CLOCK WHERE due < 1099511627776
UNION ALL SELECT time, due::BIGINT FROM WHEEL_FIRED WHERE due < 1099511627776;
CREATE TEMP TABLE timer_jiffy AS
WITH ends AS (
    SELECT max(due) - min(due) AS jiffies, arg_max(time, due) - arg_min(time, due) AS ns
    FROM timer_due
), jiffy AS (
    SELECT h.ns FROM ends, (VALUES (10000000), (4000000), (3333333), (1000000)) AS h(ns)
    WHERE jiffies >= 8 ORDER BY abs(ln(greatest(ends.ns, 1) / jiffies / h.ns)) LIMIT 1
)
SELECT ns, (SELECT min(time - due * ns) FROM timer_due) AS zero FROM jiffy;
CREATE TEMP MACRO timer_of_jiffy(j) AS
    (SELECT CASE WHEN j < 1099511627776 THEN zero + j::BIGINT * ns END FROM timer_jiffy);
SET VARIABLE timer_jiffy_ns = (SELECT ns FROM timer_jiffy);
SET VARIABLE timer_zero = (SELECT zero FROM timer_jiffy);

-- The names of what there is, which are far fewer than events.
CREATE TEMP MACRO timer_name(address, symbol) AS
    coalesce(regexp_replace(symbol, '\+.*', ''), printf('0x%x', address));
CREATE TEMP MACRO timer_kind(wheel, fn, call, called) AS CASE
    WHEN starts_with(fn, 'tick_') THEN 'tick'
    WHEN fn IN ('hrtimer_wakeup', 'process_timeout') THEN CASE
        WHEN call IS NULL THEN 'sleep'
        WHEN call < 0 THEN 'sleep of the kernel'
        WHEN called IN ('nanosleep', 'clock_nanosleep', 'clock_nanosleep_time64') THEN 'nanosleep'
        WHEN starts_with(called, 'epoll_') THEN 'epoll'
        WHEN called IN ('poll', 'ppoll', 'select', '_newselect', 'pselect6') THEN 'poll'
        WHEN starts_with(called, 'futex') THEN 'futex'
        ELSE 'time-out of ' || called END
    WHEN fn = 'posix_timer_fn' THEN 'POSIX timer'
    WHEN fn = 'it_real_fn' THEN 'setitimer'
    WHEN fn = 'timerfd_tmrproc' THEN 'timerfd'
    WHEN fn = 'alarmtimer_fired' THEN 'alarm'
    WHEN fn = 'delayed_work_timer_fn' THEN 'delayed work'
    WHEN wheel THEN 'wheel' ELSE 'hrtimer' END;
CREATE TEMP VIEW timer_each AS
SELECT false AS wheel, fn, fn_symbol, 0::UBIGINT AS work, NULL AS work_symbol, call, setter
FROM HRTIMER_FIRED
UNION ALL SELECT false, fn, fn_symbol, 0, NULL, call, setter FROM HRTIMER_VAIN
UNION ALL SELECT true, fn, fn_symbol, work, work_symbol, call, setter FROM WHEEL_FIRED
UNION ALL SELECT true, fn, fn_symbol, work, work_symbol, call, setter FROM WHEEL_VAIN;
CREATE TEMP TABLE timer_what AS
WITH each AS (
    SELECT wheel, fn, work, call, setter = 0 AS before, any_value(fn_symbol) AS fn_symbol,
        any_value(work_symbol) AS work_symbol
    FROM timer_each GROUP BY ALL
), named AS (
    SELECT *, timer_name(fn, fn_symbol) AS name,
        regexp_replace(syscall(call), '^[a-z0-9]+:', '') AS called
    FROM each
)
SELECT wheel, fn, work, call, before,
    CASE WHEN name = 'delayed_work_timer_fn' AND work > 0 THEN timer_name(work, work_symbol)
        ELSE name END AS calls,
    timer_kind(wheel, name, CASE WHEN NOT before THEN call END, called) AS kind
FROM named;
-- Nobody's: of the idle thread, of something that armed it in an interrupt, or not known.
CREATE TEMP MACRO timer_owner(pid, setter, program) AS CASE
    WHEN pid <> 0 THEN program WHEN setter = 0 THEN 'not known' WHEN setter = 1 THEN 'idle'
    ELSE 'the kernel' END;

CREATE TEMP VIEW timer_fired AS
SELECT false AS wheel, time, cpu, timer, pid, setter, call, fn, 0::UBIGINT AS work,
    timer_ns(held) AS held, timer_ns(late) AS late, timer_ns(slack) AS allowed, first
FROM HRTIMER_FIRED
UNION ALL
SELECT true, time, cpu, timer, pid, setter, call, fn, work, timer_ns(held),
    time - getvariable('timer_zero') - due::BIGINT * getvariable('timer_jiffy_ns')
        + greatest(rounded, 0) * getvariable('timer_jiffy_ns'),
    greatest(rounded, 0) * getvariable('timer_jiffy_ns'), false
FROM WHEEL_FIRED
WHERE due < 1099511627776 AND rounded < 1099511627776
    AND getvariable('timer_jiffy_ns') IS NOT NULL;
CREATE TEMP TABLE timer_fire AS
SELECT f.time, cpu, timer, pid, timer_owner(pid, setter, program) AS owner, kind, calls, wheel,
    -- What was wanted before it was armed was too late from the beginning.
    greatest(CASE WHEN held > 0 THEN least(late, held) ELSE late END, 0) AS late,
    CASE WHEN held > 0 THEN greatest(least(allowed, allowed + held - late), 0) ELSE allowed END
        AS allowed,
    greatest(CASE WHEN held > 0 THEN least(late, held) ELSE late END
        - CASE WHEN held > 0 THEN greatest(least(allowed, allowed + held - late), 0)
            ELSE allowed END, 0) AS beyond,
    held, first
FROM klogger.with_program('timer_fired') AS f
JOIN timer_what AS w USING (wheel, fn, work, call)
WHERE (setter = 0) = before;

CREATE TEMP VIEW timer_taken AS
SELECT false AS wheel, time, pid, setter, call, fn, 0::UBIGINT AS work, timer_ns(early) AS early,
    first, fate
FROM HRTIMER_VAIN
UNION ALL
SELECT true, time, pid, setter, call, fn, work,
    timer_of_jiffy(wanted) - time + timer_ns(ago), false, fate
FROM WHEEL_VAIN;
CREATE TEMP TABLE timer_back AS
SELECT t.time, timer_owner(pid, setter, program) AS owner, kind, calls, early, first, fate
FROM klogger.with_program('timer_taken') AS t JOIN timer_what AS w USING (wheel, fn, work, call)
WHERE (setter = 0) = before;

CREATE TEMP VIEW timer_warning AS
SELECT format('The log is too short to know how long a jiffy is: {:,} timers of the wheel that '
              'fired are left out.', count(*)) AS warning
FROM WHEEL_FIRED WHERE getvariable('timer_jiffy_ns') IS NULL HAVING count(*) > 0
UNION ALL
SELECT format('The end of {:,} timers was not seen: some kernels hide threads from BPF programs, '
              'and what interrupts them.', count(*))
FROM timer_back WHERE fate = 3 HAVING count(*) > 0;
