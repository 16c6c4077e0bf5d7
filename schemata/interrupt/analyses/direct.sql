-- SPDX-License-Identifier: GPL-2.0-only
-- title: Time in interrupts
-- question: How much of each CPU do interrupts take, and which ones?
-- order: 10
-- events: IRQ_IN, IRQ_OUT, VEC_IN, VEC_OUT, SOFT_IN, SOFT_OUT
-- costs: IRQ_IN, VEC_IN, SOFT_IN
-- include: _handler
-- picture: stacked x=spent y=place colour=shown
-- combine: sum
-- column name: the device, the vector, or the soft interrupt
-- column runs [count]: times that the handler ran, on all CPUs
-- column per_second [per_s, runs/seconds]: in each second of the log
-- column time [ns, bar]: time in it, without what interrupted it
-- column of_cpus [share, apart]: that time, as a part of all CPUs' time
-- column mean [ns, time/runs]: of one run
-- column p50 [ns, 0.5 of each]: half of the runs take no longer
-- column p99 [ns, 0.99 of each]: 99 of 100 runs take no longer
-- column max [ns, max]: the longest run
-- column place: CPU
-- column shown: handler
-- column spent [ns]: time that the CPU spent in it
-- note: From the first line of the handler to its last. What the hardware and the kernel need to
--     get there and back is not in it.
-- note: Only CPUs that logged an interrupt are counted.
-- empty: no interrupt came while the log was recorded

-- table
WITH span AS (
    SELECT greatest(to_ns, 1) AS ns,
        (SELECT greatest(count(DISTINCT cpu), 1) FROM handler) AS places FROM klogger.recording
), class AS (
    SELECT name, count(*) AS runs, sum(self_ns)::BIGINT AS time,
        quantile_disc(self_ns, [0.5, 0.99]) AS p,
           max(self_ns) AS max
    FROM handler GROUP BY name
)
SELECT name, runs, runs / (ns / 1e9) AS per_second, time, time / (ns * places) AS of_cpus,
       (time / runs)::BIGINT AS mean, p[1] AS p50, p[2] AS p99, max
FROM class, span ORDER BY time DESC, name;

-- picture
SELECT 'CPU ' || cpu AS place, shown, sum(self_ns)::BIGINT AS spent FROM handler
JOIN handler_shown USING (name)
GROUP BY cpu, shown ORDER BY cpu, min(rank);

-- finding
WITH span AS (
    SELECT greatest(to_ns, 1) AS ns FROM klogger.recording
), part AS (
    SELECT cpu, sum(self_ns) / any_value(span.ns) AS part FROM handler, span GROUP BY cpu
), worst AS (
    SELECT cpu, name, sum(self_ns) AS ns FROM handler GROUP BY cpu, name
)
SELECT format('Interrupts took {:.2f} % of the time of CPU {}, more than of any other; the most of '
              'that ({:.0f} %) was {}.',
              100 * p.part, p.cpu, 100 * max(w.ns) / greatest(sum(w.ns), 1),
              first(w.name ORDER BY w.ns DESC, w.name)),
       (SELECT avg(part) FROM part) AS weight
FROM (FROM part ORDER BY part DESC, cpu LIMIT 1) AS p JOIN worst AS w USING (cpu)
GROUP BY p.cpu, p.part;

-- warning
FROM handler_warning;

-- histogram
SELECT name, klogger.histogram_of(self_ns) AS each FROM handler GROUP BY name;
