-- SPDX-License-Identifier: GPL-2.0-only
-- title: Work put off
-- question: Who raises soft interrupts, and how long do these wait until they run?
-- order: 20
-- events: SOFT_RAISE, SOFT_IN
-- picture: cdf x=wait y=part colour=shown scale=log
-- combine: sum
-- column kind: soft interrupt
-- column setter: what raised it: a thread's own work, or an interrupt
-- column asked [count, bar]: times that it was raised
-- column ran [count]: times that this made it run; it had not been raised already
-- column p50 [ns, 0.5 of waits]: half of these ran no later after that
-- column p99 [ns, 0.99 of waits]: 99 of 100 ran no later
-- column max [ns, max]: the longest wait
-- column shown: soft interrupt
-- column wait [ns]: time from being raised until it runs
-- column part [share]: part of the runs that waited no longer
-- empty: no soft interrupt was raised while the log was recorded

-- What is raised a second time before it runs, runs once: its time is that from the first time
-- on, whatever raised it later.
CREATE TEMP MACRO deferred_key(cpu, kind) AS cpu::BIGINT * 65536 + kind;
CREATE TEMP VIEW deferred_begin AS
WITH edge AS (
    SELECT deferred_key(cpu, kind) AS key, time, setter, true AS asks FROM SOFT_RAISE
    UNION ALL SELECT deferred_key(cpu, kind), time, NULL, false FROM SOFT_IN
)
SELECT key, 0 AS who, time, setter AS begun FROM edge
QUALIFY asks AND lag(asks) OVER (PARTITION BY key ORDER BY time, asks) IS NOT true;
CREATE TEMP VIEW deferred_end AS SELECT deferred_key(cpu, kind) AS key, 0 AS who, time,
    kind AS ended FROM SOFT_IN;
CREATE TEMP TABLE deferred_pair AS
SELECT key // 65536 AS place, ended::BIGINT AS kind, begun::BIGINT AS setter, from_ns, to_ns
FROM klogger.pairs('deferred_begin', 'deferred_end')
WHERE from_ns IS NOT NULL AND to_ns IS NOT NULL;
CREATE TEMP TABLE deferred_seen AS FROM klogger.broken('deferred_pair', ['SOFT_RAISE', 'SOFT_IN']);
CREATE TEMP TABLE deferred AS SELECT kind, setter, to_ns - from_ns AS wait FROM deferred_seen
WHERE NOT broken;
DROP TABLE deferred_pair;

-- table
WITH asked AS (
    SELECT kind::BIGINT AS kind, setter::BIGINT AS setter, count(*) AS asked FROM SOFT_RAISE
    GROUP BY ALL
), ran AS (
    SELECT kind, setter, count(*) AS ran, quantile_disc(wait, [0.5, 0.99]) AS p, max(wait) AS max
    FROM deferred GROUP BY ALL
)
SELECT softirq(kind) AS kind, setter(setter) AS setter, asked, coalesce(ran, 0) AS ran, p[1] AS p50,
    p[2] AS p99, max
FROM asked LEFT JOIN ran USING (kind, setter) ORDER BY asked DESC, kind, setter;

-- picture
WITH sample AS (SELECT kind AS series, 0 AS place, wait AS ns FROM deferred)
SELECT softirq(series) AS shown, ns AS wait, part FROM klogger.curve_of('sample', 8)
ORDER BY shown, part;

-- finding
SELECT format('Half of the {:,} soft interrupts ran within {} of being raised; the longest '
              'waited {} ({}).',
              count(*), duration(quantile_disc(wait, 0.5)), duration(max(wait)),
              softirq(arg_max(kind, wait))),
       sum(wait) / (greatest(any_value(to_ns), 1)
           * (SELECT greatest(count(DISTINCT cpu), 1) FROM SOFT_IN)) AS weight
FROM deferred, klogger.recording HAVING count(*) > 0;

-- warning
SELECT format('Left out, because events are missing between being raised and running: {:,} {}.',
    count(*),
              CASE count(*) WHEN 1 THEN 'wait' ELSE 'waits' END)
FROM deferred_seen WHERE broken HAVING count(*) > 0;

-- histogram
SELECT softirq(kind) AS kind, setter(setter) AS setter, klogger.histogram_of(wait) AS waits
FROM deferred GROUP BY ALL;
