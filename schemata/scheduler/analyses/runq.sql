-- SPDX-License-Identifier: GPL-2.0-only
-- title: Run queues
-- question: How many threads compete for each CPU, and does one wait while another CPU is free?
-- order: 35
-- events: SCHEDIN, SCHEDOUT, ADD_TO_RUNQ, REMOVE_FROM_RUNQ, MIGRATE
-- include: _place
-- picture: stacked x=share y=on_cpu colour=threads
-- column on_cpu: CPU
-- column mean [count]: threads that ran or could run there, averaged over time
-- column max [count]: the most
-- column free [share]: time with none
-- column one [share]: time with one, which ran
-- column more [share, bar]: time in which at least one had to wait
-- column wasted [share, bar]: of the whole time, that in which one had to wait here while another
--     CPU was free
-- column over_time [spark]: average number in each fortieth of the log
-- column threads: threads that could run
-- column share [share]: part of the log's length
-- note: Threads that were recorded. A CPU is free if none of these could run there; in a recording
--     of one workload, others may have used it. With -a all are recorded.
-- empty: no thread in scope could run while the log was recorded

-- Steps of the length of each queue. A CPU that had no thread at all has the length 0 all the time.
-- Of several changes at one time all rows have the length after the last of them, and only one
-- lasts.
CREATE TEMP TABLE runq AS
WITH step AS (
    SELECT cpu, from_ns AS time, 1 AS change FROM place
    UNION ALL SELECT cpu, to_ns, -1 FROM place
    UNION ALL SELECT unnest(cpus), 0, 0 FROM klogger.recording
    WHERE (SELECT count(*) FROM place) > 0
)
SELECT cpu, time, (sum(change) OVER w)::INTEGER AS length,
       lead(time, 1, (SELECT to_ns FROM klogger.recording)) OVER w AS until
FROM step WINDOW w AS (PARTITION BY cpu ORDER BY time);
DELETE FROM runq WHERE until = time;

-- runq_free: how much time had passed, at some moments, in which some CPU was free. The
-- difference of its values at two moments is the free time between them.
CREATE TEMP TABLE runq_free AS
WITH step AS (
    SELECT time, 1 AS change FROM runq WHERE length = 0 UNION ALL SELECT until, -1 FROM runq
    WHERE length = 0
    UNION ALL SELECT 0, 0
), counted AS (
    SELECT time, sum(change) OVER (ORDER BY time) > 0 AS free,
        lead(time, 1, time) OVER (ORDER BY time) - time AS ns FROM step
)
SELECT time, free, coalesce(sum(CASE WHEN free THEN ns ELSE 0 END)
                            OVER (ORDER BY time ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING),
                            0)::BIGINT AS passed
FROM counted QUALIFY ns > 0 OR time = max(time) OVER ();
CREATE TEMP TABLE runq_wasted AS
WITH edge AS (
    SELECT cpu, time, -1 AS side FROM runq WHERE length > 1
    UNION ALL SELECT cpu, until, 1 FROM runq WHERE length > 1
)
SELECT e.cpu, sum(side * (f.passed + CASE WHEN f.free THEN e.time - f.time
    ELSE 0 END))::BIGINT AS ns
FROM edge AS e ASOF JOIN runq_free AS f ON e.time >= f.time GROUP BY e.cpu;

-- table
WITH slot AS (
    SELECT cpu, k, sum(length * greatest(least(until, (k + 1) * w) - greatest(time, k * w), 0))
        / max(w) AS mean
    FROM (SELECT cpu, time, until, length, (r.to_ns // 40 + 1) AS w,
                 unnest(range(time // (r.to_ns // 40 + 1), until // (r.to_ns // 40 + 1) + 1)) AS k
          FROM runq, klogger.recording AS r)
    GROUP BY cpu, k
)
SELECT q.cpu AS on_cpu, sum(length * (until - time)) / nullif(max(r.to_ns), 0) AS mean,
    max(length) AS max,
       coalesce(sum(until - time) FILTER (length = 0), 0) / nullif(max(r.to_ns), 0) AS free,
       coalesce(sum(until - time) FILTER (length = 1), 0) / nullif(max(r.to_ns), 0) AS one,
       coalesce(sum(until - time) FILTER (length > 1), 0) / nullif(max(r.to_ns), 0) AS more,
       coalesce(any_value(w.ns), 0) / nullif(max(r.to_ns), 0) AS wasted,
       (SELECT list(s.mean ORDER BY s.k) FROM slot AS s
           WHERE s.cpu = q.cpu AND s.k < 40) AS over_time
FROM runq AS q LEFT JOIN runq_wasted AS w ON q.cpu = w.cpu, klogger.recording AS r GROUP BY q.cpu
ORDER BY q.cpu;

-- picture
SELECT cpu AS on_cpu, CASE least(length, 8) WHEN 0 THEN 'none' WHEN 8 THEN '8 and more'
    ELSE least(length, 8)::VARCHAR END AS threads,
       sum(until - time) / nullif((SELECT to_ns FROM klogger.recording), 0) AS share
FROM runq GROUP BY cpu, least(length, 8) ORDER BY cpu, least(length, 8);

-- finding
-- That the two ends of a pipe wait for each other for some milliseconds is usual, and no finding:
-- it takes 100 ms. Those that were longest on the queue of the CPU where most was wasted, and the
-- CPU that was free for longest.
WITH worst AS (
    SELECT cpu, ns / r.to_ns AS part FROM runq_wasted, klogger.recording AS r
    WHERE ns > 0.01 * r.to_ns AND ns >= 100_000_000 ORDER BY ns DESC, cpu LIMIT 1
), there AS (
    SELECT p.pid, sum(p.to_ns - p.from_ns) AS ns, max(p.to_ns) AS time
    FROM place AS p JOIN worst USING (cpu) GROUP BY p.pid ORDER BY ns DESC, p.pid
), named AS (
    SELECT format('{}[{}]', comm(pid, time), pid) AS thread, ns FROM there
    WHERE ns >= 0.2 * (SELECT max(ns) FROM there) ORDER BY ns DESC, pid LIMIT 3
), free AS (
    SELECT q.cpu FROM runq AS q WHERE length = 0 AND q.cpu NOT IN (SELECT cpu FROM worst)
    GROUP BY q.cpu ORDER BY sum(until - time) DESC, q.cpu LIMIT 1
)
SELECT format('Threads wait on CPU {} for {:.0f} % of the time while CPU {} {}: {}. See whether '
              'they are bound to that CPU.',
              w.cpu, 100 * w.part, f.cpu,
              CASE WHEN len((SELECT cpus FROM klogger.recording)) > 2 THEN 'or another one '
                  ELSE '' END
              || CASE WHEN EXISTS (FROM SCHEDIN WHERE pid = 0) THEN 'is idle'
                  ELSE 'has none of the recorded threads' END,
              (SELECT string_agg(thread, ', ' ORDER BY ns DESC, thread) FROM named)),
       w.part AS weight
FROM worst AS w, free AS f;

-- warning
FROM place_warning;
