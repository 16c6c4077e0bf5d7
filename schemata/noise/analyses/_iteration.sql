-- SPDX-License-Identifier: GPL-2.0-only
-- iteration: one row for each time that the loop did its computation.
--
--   id, pid, cpu, touches  a number of its own; whose, where, and how many bytes it walks
--   from_ns, to_ns, nominal  ns since the log's start; what it was calibrated to take
--   usual                  its block's median without handlers: the CPU's speed may change after it
--                          was calibrated
--   raw                    how long it took
--   timer_ns, all_ns       time in it that the timer's handlers, and all handlers, took on its CPU
--   interrupts             how many interrupts came, without soft ones
--   class                  which class they are all of; NULL if of several, or if none came
--   out_ns                 time in it that another thread had the CPU
--
-- An iteration is left out if events are missing in it: it is not known what it contains.

CREATE TEMP TABLE iteration_break AS
SELECT from_ns, to_ns FROM klogger.gap UNION ALL SELECT from_ns, to_ns FROM klogger.thread_gap;

-- An iteration begins where the one before it ended. If LOOP was lost in between, the numbers show
-- it.
CREATE TEMP TABLE iteration_all AS
WITH edge AS (
    SELECT pid, time, 0 AS i, nominal, touches, bound_to FROM LOOP_BEGIN
    UNION ALL
    SELECT pid, time, i, NULL, NULL, NULL FROM LOOP
), paired AS (
    SELECT pid, i, time AS to_ns, lag(time) OVER w AS from_ns, lag(i) OVER w AS before FROM edge
    WINDOW w AS (PARTITION BY pid ORDER BY time, i)
)
SELECT row_number() OVER (ORDER BY p.pid, p.to_ns) AS id, p.pid, b.bound_to::INTEGER AS cpu,
    b.touches, b.nominal::BIGINT AS nominal,
       b.time AS block, p.from_ns, p.to_ns, p.to_ns - p.from_ns AS raw
FROM (FROM paired WHERE i > 0 AND before = i - 1) AS p
ASOF JOIN LOOP_BEGIN AS b ON p.pid = b.pid AND p.to_ns >= b.time;

CREATE TEMP TABLE iteration_handler AS
SELECT i.id, h.level, h.class, h.name, h.inside,
    least(h.to_ns, i.to_ns) - greatest(h.from_ns, i.from_ns) AS ns,
       h.self_ns * ((least(h.to_ns, i.to_ns) - greatest(h.from_ns, i.from_ns)) / h.ns) AS self_ns,
       h.from_ns >= i.from_ns AS begins
FROM iteration_all AS i
JOIN handler AS h ON h.cpu = i.cpu AND h.from_ns < i.to_ns AND h.to_ns > i.from_ns WHERE h.ns > 0;

-- When the thread was not running, by what the scheduler logged of it.
CREATE TEMP TABLE iteration_out AS
WITH away AS (
    SELECT o.pid, o.next, o.time AS from_ns, i.time AS to_ns
    FROM (SELECT pid, next, time FROM SCHEDOUT WHERE pid IN (SELECT pid FROM LOOP_BEGIN)) AS o
    ASOF LEFT JOIN SCHEDIN AS i ON o.pid = i.pid AND o.time <= i.time
)
SELECT i.id, a.next, least(coalesce(a.to_ns, i.to_ns), i.to_ns)
    - greatest(a.from_ns, i.from_ns) AS ns
FROM iteration_all AS i JOIN away AS a
ON i.pid = a.pid AND a.from_ns < i.to_ns AND coalesce(a.to_ns, i.to_ns) > i.from_ns;

-- A soft interrupt that the timer asks for runs when the timer's own handler has ended.
CREATE TEMP TABLE iteration AS
WITH per AS (
    SELECT id, sum(ns) FILTER (NOT inside) AS all_ns,
           sum(self_ns) FILTER (class = 'timer'
               OR name IN ('softirq TIMER', 'softirq SCHED', 'softirq RCU',
                   'softirq HRTIMER')) AS timer_ns,
           count(*) FILTER (level > 0 AND begins) AS interrupts,
           CASE WHEN count(DISTINCT class) FILTER (level > 0) = 1
               THEN any_value(class) FILTER (level > 0) END AS class
    FROM iteration_handler GROUP BY id
), away AS (
    SELECT id, sum(ns) AS ns FROM iteration_out GROUP BY id
)
SELECT i.* EXCLUDE (block), median(raw
    - least(coalesce(p.all_ns, 0), raw)) FILTER (a.ns IS NULL) OVER (PARTITION BY i.pid,
    block) AS usual,
       least(coalesce(p.timer_ns, 0), coalesce(p.all_ns, 0), raw)::BIGINT AS timer_ns,
       least(coalesce(p.all_ns, 0), raw)::BIGINT AS all_ns,
       coalesce(p.interrupts, 0) AS interrupts, p.class, coalesce(a.ns, 0)::BIGINT AS out_ns
FROM iteration_all AS i LEFT JOIN per AS p USING (id) LEFT JOIN away AS a USING (id)
WHERE NOT EXISTS (SELECT 1 FROM iteration_break AS b
    WHERE b.from_ns < i.to_ns AND b.to_ns >= i.from_ns);

-- What a study of interrupts looks at: the iterations in which the loop had its CPU all along.
CREATE TEMP VIEW iteration_kept AS SELECT * FROM iteration WHERE out_ns = 0;

CREATE TEMP VIEW iteration_warning AS
SELECT format('Left out, because events are missing in them: {:,} iterations.', missing) AS warning
FROM (SELECT (SELECT count(*) FROM LOOP) - (SELECT count(*) FROM iteration) AS missing)
WHERE missing > 0;
