-- SPDX-License-Identifier: GPL-2.0-only
-- title: Lengths of run queues
-- question: How many threads are on each CPU's queue, for how much of the time?
-- order: 40
-- events: NR_RUNNING
-- picture: stacked x=share y=runq colour=queued
-- column runq: CPU
-- column mean [count]: threads on its queue, averaged over time
-- column max [count]: the most
-- column empty [share]: time in which there was none
-- column one [share, bar]: time in which there was one, and none waited
-- column more [share, bar]: time in which others waited, or slept without having left the queue
-- column changes [count]: times that the length changed
-- column queued: threads on the queue
-- column share [share]: of the time that is known
-- note: This is the kernel's own number. Since Linux 6.12 it counts a thread that has gone to sleep
--     until its turn would have come, so it may be 2 although no thread waits. `runq` of the
--     scheduler schema counts runnable threads.
-- note: Time before the first change on a CPU is not known; neither is the time of a gap.
-- empty: no run queue changed its length while the log was recorded

CREATE TEMP TABLE queue_length AS
WITH step AS (
    SELECT runq, time, queued::INTEGER AS queued FROM NR_RUNNING
    UNION ALL
    SELECT q.runq, unnest([g.from_ns, g.to_ns - 1]), NULL
    FROM (SELECT * FROM klogger.gap WHERE event IS NULL OR event = 'NR_RUNNING') AS g,
        (SELECT DISTINCT runq FROM NR_RUNNING) AS q
)
SELECT runq, queued, least(queued, 8) AS shown,
       lead(time, 1, (SELECT to_ns FROM klogger.recording)) OVER (PARTITION BY runq ORDER BY time)
           - time AS ns
FROM step;
DELETE FROM queue_length WHERE queued IS NULL;

-- table
SELECT runq, sum(queued * ns) / nullif(sum(ns), 0) AS mean, max(queued) AS max,
       coalesce(sum(ns) FILTER (queued = 0), 0) / nullif(sum(ns), 0) AS empty,
       coalesce(sum(ns) FILTER (queued = 1), 0) / nullif(sum(ns), 0) AS one,
       coalesce(sum(ns) FILTER (queued > 1), 0) / nullif(sum(ns), 0) AS more, count(*) AS changes
FROM queue_length GROUP BY runq ORDER BY runq;

-- picture
SELECT runq, CASE WHEN shown = 8 THEN '8 and more' ELSE shown::VARCHAR END AS queued,
       sum(ns) / nullif(sum(sum(ns)) OVER (PARTITION BY runq), 0) AS share
FROM queue_length GROUP BY runq, shown ORDER BY runq, shown;

-- finding
SELECT format('On average {:.2f} threads were on the queue of CPU {}, {:.2f} on that of CPU {}.',
    max(mean), arg_max(runq, mean),
              min(mean), arg_min(runq, mean))
FROM (SELECT runq, sum(queued * ns) / nullif(sum(ns), 0) AS mean FROM queue_length GROUP BY runq)
HAVING count(*) > 1;
