-- SPDX-License-Identifier: GPL-2.0-only
-- title: Why threads stop
-- question: Does a program give its CPU up, or is it taken away?
-- order: 50
-- events: SCHEDIN, SCHEDOUT
-- include: _cause
-- picture: stacked x=part y=shown colour=cause
-- combine: sum
-- column program: name of the thread when it left its CPU
-- column switches [count, bar]: times that a thread left its CPU
-- column per_second [per_s, switches/seconds]: in each second of the log
-- column preempted [share, of switches]: it could have gone on: preempted, or yielded
-- column sleeps [share, of switches]: it waits, and a signal can wake it (S)
-- column waits [share, of switches]: it waits for something that no signal ends, mostly a device
--     (D)
-- column ends [share, of switches]: it ended
-- column other [share, of switches]: it was stopped, or waits in another way
-- column shown: program
-- column cause: why it left its CPU
-- column part [share]: of the times that the program left its CPU
-- column times [count]: how often
-- note: The kernel counts a yield like a preemption (nivcsw of getrusage), and all others as
--     voluntary (nvcsw).
-- empty: no thread in scope left its CPU while the log was recorded

CREATE TEMP VIEW switch_out AS SELECT pid, time, state FROM SCHEDOUT WHERE pid <> 0;
CREATE TEMP TABLE switch AS
SELECT program, cause, words, sum(times)::BIGINT AS switches
FROM (SELECT program, state, count(*) AS times FROM klogger.with_program('switch_out') GROUP BY ALL)
JOIN switch_cause USING (state) GROUP BY ALL;
CREATE TEMP TABLE switch_program AS
SELECT program, sum(switches)::BIGINT AS switches,
    row_number() OVER (ORDER BY sum(switches) DESC, program) AS rank
FROM switch GROUP BY program;

-- table
SELECT program, p.switches, p.switches / nullif((SELECT (to_ns - from_ns) / 1e9
    FROM klogger.recording), 0) AS per_second,
       coalesce(sum(s.switches) FILTER (cause = 'preempted'), 0) / p.switches AS preempted,
       coalesce(sum(s.switches) FILTER (cause = 'sleeps'), 0) / p.switches AS sleeps,
       coalesce(sum(s.switches) FILTER (cause = 'waits'), 0) / p.switches AS waits,
       coalesce(sum(s.switches) FILTER (cause = 'ends'), 0) / p.switches AS ends,
       coalesce(sum(s.switches) FILTER (cause = 'other'), 0) / p.switches AS other
FROM switch AS s JOIN switch_program AS p USING (program) GROUP BY program, p.switches
ORDER BY p.switches DESC, program;

-- picture
WITH named AS (
    SELECT CASE WHEN p.rank <= 14 THEN program ELSE 'other' END AS shown, p.rank, s.switches,
           s.words AS cause
    FROM switch AS s JOIN switch_program AS p USING (program)
), counted AS (
    SELECT shown, cause, min(rank) AS rank, sum(switches)::BIGINT AS times FROM named
    GROUP BY shown, cause
)
SELECT shown, cause, times, times / sum(times) OVER (PARTITION BY shown) AS part FROM counted
ORDER BY min(rank) OVER (PARTITION BY shown), cause;

-- finding
SELECT format('Threads left their CPU {}, and {:.0f} % of these because it was taken from them (or '
              'because they yielded).',
              CASE sum(switches)::BIGINT WHEN 1 THEN 'once'
                  ELSE format('{:,} times', sum(switches)::BIGINT) END,
              100 * coalesce(sum(switches) FILTER (cause = 'preempted'), 0) / sum(switches))
FROM switch HAVING count(*) > 0;
