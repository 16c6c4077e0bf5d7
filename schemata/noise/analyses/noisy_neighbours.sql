-- SPDX-License-Identifier: GPL-2.0-only
-- title: The worst iterations
-- question: What happened in the iterations that took longest?
-- order: 30
-- events: LOOP_BEGIN, LOOP, IRQ_IN, IRQ_OUT, VEC_IN, VEC_OUT, SOFT_IN, SOFT_OUT, SCHEDIN, SCHEDOUT,
--     STEAL
-- include: ../../interrupt/analyses/_handler
-- include: _iteration
-- picture: stacked x=ns y=iteration colour=cause
-- column begins [ns]: time since the log's start
-- column took [ns]: time of the iteration
-- column handlers [ns]: of that, in handlers of interrupts
-- column others [ns]: another thread had the CPU
-- column steal [ns]: the hypervisor took it, as the kernel found until the next tick; perhaps from
--     a neighbour of it
-- column unseen [ns]: the rest of what is above the median: not seen by the log
-- column what: handlers and threads in the iteration, the longest first
-- column iteration: the iteration that began at this time
-- column cause: what took the time
-- column ns [ns]: longer than the median by
-- note: The worst thousandth, or five if these are more. What the log does not see: firmware (SMI),
--     the CPU's frequency, what shares its core or its caches, and a hypervisor that does not tell.
-- empty: no program logged LOOP while the log was recorded

CREATE TEMP TABLE worst AS
WITH ranked AS (
    SELECT *, row_number() OVER (ORDER BY raw DESC, id) AS rank, count(*) OVER () AS total,
           raw - median(raw) OVER () AS longer
    FROM iteration
)
SELECT * FROM ranked WHERE rank <= greatest(5, total // 1000) AND longer > 0;

-- The first tick after an iteration tells what was stolen before it.
CREATE TEMP TABLE worst_steal AS
WITH told AS (
    SELECT cpu, time, least(greatest(total::HUGEINT
        - lag(total) OVER (PARTITION BY cpu ORDER BY time), 0), time) AS stolen FROM STEAL
), until AS (
    SELECT w.id, w.cpu, w.from_ns, v.time
    FROM worst AS w ASOF LEFT JOIN (FROM VEC_OUT WHERE kind = 0) AS v ON w.cpu = v.cpu
        AND w.to_ns <= v.time
)
SELECT u.id, sum(t.stolen)::BIGINT AS ns
FROM until AS u JOIN told AS t ON u.cpu = t.cpu AND t.time > u.from_ns AND t.time <= u.time
GROUP BY u.id;

CREATE TEMP TABLE worst_part AS
SELECT id, name AS what, count(*) AS times, sum(self_ns)::BIGINT AS ns FROM iteration_handler SEMI
JOIN worst USING (id) GROUP BY id, name
UNION ALL
SELECT id, CASE WHEN next = 0 THEN 'idle'
    ELSE klogger.comm(next, NULL) END, count(*), sum(ns)::BIGINT
FROM iteration_out SEMI JOIN worst USING (id) GROUP BY id, next;

-- Each cause may explain no more than what is left by those before it.
CREATE TEMP TABLE worst_cause AS
WITH stolen AS (
    SELECT w.*, greatest(longer - all_ns - out_ns, 0)::BIGINT AS rest, coalesce(s.ns, 0) AS stolen
    FROM worst AS w LEFT JOIN worst_steal AS s USING (id)
)
SELECT *, least(stolen, rest) AS steal, rest - least(stolen, rest) AS unseen FROM stolen;

-- table
SELECT from_ns AS begins, raw AS took, all_ns AS handlers, out_ns AS others, steal, unseen,
       (SELECT string_agg(format('{}{} {}', what, CASE WHEN times > 1 THEN format(' ({})', times)
           ELSE '' END, duration(ns)), ', '
                          ORDER BY ns DESC, what) FROM worst_part AS p WHERE p.id = w.id) AS what
FROM worst_cause AS w ORDER BY rank;

-- picture
WITH part AS (
    SELECT rank, from_ns, 'handlers' AS cause, all_ns AS ns FROM worst_cause
    UNION ALL SELECT rank, from_ns, 'other threads', out_ns FROM worst_cause
    UNION ALL SELECT rank, from_ns, 'stolen by the hypervisor', steal FROM worst_cause
    UNION ALL SELECT rank, from_ns, 'not seen by the log', unseen FROM worst_cause
)
SELECT format('at {:.3f} s', from_ns / 1e9) AS iteration, cause, ns FROM part
WHERE ns > 0 AND rank <= 30 ORDER BY rank, cause;

-- finding
SELECT format('The worst {:,} iterations are longer than the median by {} in all: {:.0f} % of it '
              'other threads, {:.0f} % handlers, '
              || '{:.0f} % stolen by the hypervisor, {:.0f} % not seen by the log.',
              count(*), duration(sum(longer)), 100 * sum(least(out_ns, longer)) / sum(longer),
              100 * sum(least(all_ns, greatest(longer - out_ns, 0))) / sum(longer),
              100 * sum(steal) / sum(longer),
              100 * sum(unseen) / sum(longer)),
       sum(longer) / greatest((SELECT sum(raw) FROM iteration), 1) AS weight
FROM worst_cause HAVING count(*) > 0;

-- warning
FROM iteration_warning UNION ALL FROM handler_warning;
