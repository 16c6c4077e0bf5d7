-- SPDX-License-Identifier: GPL-2.0-only
-- title: Lives of processes
-- question: How long does it take from fork to the first run, to exec and to the end, and where
--     does the child start?
-- order: 80
-- events: FORK, EXEC, EXIT, SCHEDIN
-- picture: cdf x=time y=part colour=what scale=log
-- combine: sum
-- column program: the thread that forked
-- column forks [count, bar]: processes that it made; threads are not counted
-- column first_run_p50 [ns, apart]: from fork to when the child gets a CPU: half of them are
--     quicker
-- column same_cpu [share, apart]: children whose first CPU is the one on which their parent forked
-- column exec [share, of forks]: children that called exec
-- column to_exec_p50 [ns, apart]: from fork to exec, half of them are quicker
-- column to_exit_p50 [ns, apart]: from fork to the end of the child's first thread
-- column to_exit_p99 [ns, apart]: 99 of 100 are quicker
-- column alive [count]: children whose end is not in the log
-- column what: from fork until then
-- column time [ns]: time since fork
-- column part [share]: of the children that came so far, those that took no longer
-- empty: no thread in scope made a process while the log was recorded

-- A thread id may be used again: what comes after the next fork of that id is another process's.
CREATE TEMP TABLE process_life AS
WITH made AS (
    SELECT parent AS pid, child, time, cpu,
        lead(time) OVER (PARTITION BY child ORDER BY time) AS again FROM FORK WHERE tgid = child
), run AS (
    SELECT m.*, CASE WHEN i.time < coalesce(again, i.time + 1) THEN i.time END AS ran,
        i.cpu AS ran_on
    FROM made AS m ASOF LEFT JOIN SCHEDIN AS i ON m.child = i.pid AND m.time <= i.time
), execed AS (
    SELECT r.*, CASE WHEN e.time < coalesce(again, e.time + 1) THEN e.time END AS execed
    FROM run AS r ASOF LEFT JOIN EXEC AS e ON r.child = e.pid AND r.time <= e.time
)
SELECT x.*, CASE WHEN e.time < coalesce(again, e.time + 1) THEN e.time END AS ended
FROM execed AS x ASOF LEFT JOIN EXIT AS e ON x.child = e.pid AND x.time <= e.time;

-- table
SELECT program, count(*) AS forks, quantile_disc(ran - time, 0.5) AS first_run_p50,
       count(*) FILTER (ran_on = cpu AND ran IS NOT NULL) / nullif(count(ran), 0) AS same_cpu,
       count(execed) / count(*) AS exec,
       quantile_disc(execed - time, 0.5) AS to_exec_p50,
       quantile_disc(ended - time, 0.5) AS to_exit_p50,
       quantile_disc(ended - time, 0.99) AS to_exit_p99, count(*) - count(ended) AS alive
FROM klogger.with_program('process_life') GROUP BY program ORDER BY forks DESC, program;

-- picture
WITH sample AS (
    SELECT 1 AS place, 'first run' AS series, ran - time AS ns FROM process_life
    UNION ALL SELECT 2, 'exec', execed - time FROM process_life
    UNION ALL SELECT 3, 'exit', ended - time FROM process_life
)
SELECT series AS what, ns AS time, part FROM klogger.curve_of('sample', 8) ORDER BY place, part;

-- finding
SELECT format('{} made, {:.0f} a second. {:.0f} % of the children ran first on the CPU of their '
              'parent; half of those that ended did so within {}.',
              CASE forks WHEN 1 THEN 'One process was'
                  ELSE format('{:,} processes were', forks) END,
              forks * 1e9 / greatest(r.to_ns, 1), 100 * same / greatest(ran, 1),
              coalesce(duration(p50), 'no time that is known'))
FROM (SELECT count(*) AS forks, count(*) FILTER (ran_on = cpu AND ran IS NOT NULL) AS same,
    count(ran) AS ran,
             quantile_disc(ended - time, 0.5) AS p50
      FROM process_life HAVING count(*) > 0), klogger.recording AS r;
