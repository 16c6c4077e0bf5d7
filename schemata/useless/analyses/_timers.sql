-- SPDX-License-Identifier: GPL-2.0-only
-- Whose a timer is, by the function that it calls.

CREATE TEMP MACRO useless_whose(function) AS CASE
    WHEN function IN ('hrtimer_wakeup', 'process_timeout', 'it_real_fn', 'posix_timer_fn',
        'timerfd_tmrproc') THEN 'thread'
    WHEN function IN ('tick_nohz_handler', 'tick_sched_timer') THEN 'tick'
    ELSE 'kernel' END;
