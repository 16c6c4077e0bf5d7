-- SPDX-License-Identifier: GPL-2.0-only
-- title: Time in the scheduler
-- question: How much of the CPUs' time goes into the scheduler, and does it grow with the queue?
-- order: 20
-- events: SCHED_ENTER, CPU_SWITCH, SCHED_LEAVE, NR_RUNNING
-- costs: SCHED_ENTER, CPU_SWITCH
-- include: _call
-- picture: stacked x=time y=queued colour=what
-- combine: sum
-- column queued: threads on the queue; on that of the CPU when the scheduler was called, with the
--     one that called
-- column calls [count]: calls of the scheduler
-- column switched [share, of calls]: of these calls, those that changed to another thread
-- column time [ns]: in the scheduler, all CPUs together
-- column share [share, bar, apart]: of the time of all CPUs
-- column choosing [ns]: of calls that switched: until the switch
-- column changing [ns]: of calls that switched: after the switch
-- column no_switch [ns]: of calls that did not switch
-- column what: part of the scheduler's work
-- note: This is the KLogger paper's Figure 7 by length of the queue. Linux 2.4 went through all
--     threads to choose one; since 2.6 the length of the queue should make little difference.
-- note: The cost of logging is a part of these times.
-- empty: no call of the scheduler is in the log; kernels before 6.15 cannot report them
--     (sched_entry_tp, sched_exit_tp)

SET VARIABLE scheduler_time_all = (SELECT greatest(r.to_ns, 1) * greatest(c.cpus, 1)
    FROM klogger.recording AS r, (SELECT count(DISTINCT cpu) AS cpus FROM SCHED_LEAVE) AS c);
CREATE TEMP TABLE scheduler_time AS
SELECT call_group(queued) AS queued, coalesce(min(queued), 1_000_000) AS rank, count(*) AS calls,
       count(*) FILTER (switched) AS switched,
       coalesce(sum(pick) FILTER (switched), 0)::BIGINT AS choosing,
       coalesce(sum(change), 0)::BIGINT AS changing,
       coalesce(sum(pick) FILTER (NOT switched), 0)::BIGINT AS no_switch
FROM call GROUP BY call_group(queued);

-- table
SELECT queued, calls, switched / calls AS switched, choosing + changing + no_switch AS time,
       (choosing + changing + no_switch) / getvariable('scheduler_time_all') AS share, choosing,
       changing, no_switch
FROM scheduler_time ORDER BY rank;

-- picture
SELECT queued, what, time FROM (
    SELECT rank, queued, 1 AS place, 'choosing' AS what, choosing AS time FROM scheduler_time
    UNION ALL SELECT rank, queued, 2, 'changing', changing FROM scheduler_time
    UNION ALL SELECT rank, queued, 3, 'no switch', no_switch FROM scheduler_time
) ORDER BY rank, place;

-- finding
SELECT format('The scheduler had {:.2f} % of the time of all CPUs: {:,} calls a second, {:.0f} % '
              'of which changed the thread.',
              100 * time / getvariable('scheduler_time_all'),
              (calls * 1e9 / greatest(r.to_ns, 1))::BIGINT,
              100 * switched / calls),
       time / getvariable('scheduler_time_all') AS weight
FROM (SELECT sum(choosing + changing + no_switch) AS time, sum(calls)::BIGINT AS calls,
    sum(switched)::BIGINT AS switched
      FROM scheduler_time HAVING count(*) > 0), klogger.recording AS r;

-- warning
FROM call_warning;
