-- SPDX-License-Identifier: GPL-2.0-only
-- title: Work put off
-- question: Who asks for soft interrupts, and how long do these wait until they run?
-- order: 20
-- events: SOFT_RAISE, SOFT_IN
-- picture: cdf x=wait y=part colour=shown scale=log
-- column kind: soft interrupt
-- column setter: what asked for it: a thread's own work, or an interrupt
-- column asked [count, bar]: times that it was asked for
-- column ran [count]: times that it had not been asked for already
-- column p50 [ns]: half of these ran no later after that
-- column p99 [ns]: 99 of 100 ran no later
-- column max [ns]: the longest wait
-- column shown: soft interrupt
-- column wait [ns]: time from being asked for until it runs
-- column part [share]: part of the runs that waited no longer
-- empty: no soft interrupt was asked for while the log was recorded

-- What is asked for a second time before it runs, runs once.
CREATE TEMP TABLE deferred AS
WITH edge AS (
    SELECT cpu, kind::BIGINT AS kind, time, setter::BIGINT AS setter FROM SOFT_RAISE
    UNION ALL SELECT cpu, kind::BIGINT, time, NULL FROM SOFT_IN
), paired AS (
    SELECT *, lag(setter) OVER w AS before, lag(time) OVER w AS earlier FROM edge WINDOW w AS (PARTITION BY cpu, kind ORDER BY time, setter)
), marked AS (
    SELECT *, setter IS NOT NULL AND (before IS NULL) AS first,
           max(CASE WHEN setter IS NOT NULL AND before IS NULL THEN time END) OVER (PARTITION BY cpu, kind ORDER BY time, setter) AS since
    FROM paired
)
SELECT kind, before AS setter, time - since AS wait FROM marked WHERE setter IS NULL AND before IS NOT NULL;

-- table
WITH asked AS (
    SELECT kind::BIGINT AS kind, setter::BIGINT AS setter, count(*) AS asked FROM SOFT_RAISE GROUP BY ALL
), ran AS (
    SELECT kind, setter, count(*) AS ran, quantile_disc(wait, [0.5, 0.99]) AS p, max(wait) AS max FROM deferred GROUP BY ALL
)
SELECT softirq(kind) AS kind, setter(setter) AS setter, asked, coalesce(ran, 0) AS ran, p[1] AS p50, p[2] AS p99, max
FROM asked LEFT JOIN ran USING (kind, setter) ORDER BY asked DESC, kind, setter;

-- picture
WITH point AS (
    SELECT softirq(kind) AS shown, max(wait) AS wait, min(wait) AS shortest, count(*) AS runs
    FROM deferred GROUP BY kind, floor(8 * log2(greatest(wait, 1)))
), curve AS (
    SELECT shown, wait, min(shortest) OVER whole AS shortest, sum(runs) OVER (whole ORDER BY wait) / sum(runs) OVER whole AS part
    FROM point WINDOW whole AS (PARTITION BY shown)
)
SELECT shown, wait, part FROM (SELECT shown, wait, part FROM curve UNION SELECT shown, shortest, 0 FROM curve)
ORDER BY shown, part;

-- finding
SELECT format('Half of the {:,} soft interrupts ran within {} of being asked for; the longest waited {} ({}).',
              count(*), duration(quantile_disc(wait, 0.5)), duration(max(wait)), softirq(arg_max(kind, wait))),
       sum(wait) / (greatest(any_value(to_ns), 1) * (SELECT greatest(count(DISTINCT cpu), 1) FROM SOFT_IN)) AS weight
FROM deferred, klogger.recording HAVING count(*) > 0;
