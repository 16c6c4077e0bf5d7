-- SPDX-License-Identifier: GPL-2.0-only
-- title: Interrupts in each second
-- question: How often is each CPU interrupted, by what, and when?
-- order: 20
-- events: IRQ_IN, IRQ_OUT, VEC_IN, VEC_OUT, SOFT_IN, SOFT_OUT
-- include: _handler
-- picture: histogram x=begins x2=ends y=rate colour=shown
-- combine: sum
-- column cpu: CPU
-- column class: timer, device, IPI (from another CPU), softirq (put off by an interrupt), NMI, or
--     other
-- column name: the device, the vector, or the soft interrupt
-- column runs [count]: how often
-- column per_second [per_s, bar, runs/seconds]: in each second of the log
-- column peak [per_s, apart]: in each second, in the busiest fortieth of the log
-- column over_time [spark, apart]: runs in each fortieth of the log
-- column shown: handler
-- column begins [ns]: time since the log's start
-- column ends [ns]: end of the bin
-- column rate [count]: runs a second, of all CPUs together
-- note: A CPU that idles stops its timer: few timer interrupts may mean little work.
-- empty: no interrupt came while the log was recorded

SET VARIABLE rates_width = (SELECT to_ns // 40 + 1 FROM klogger.recording);
CREATE TEMP TABLE rate_bin AS
SELECT cpu, level, class, name, from_ns // getvariable('rates_width')::BIGINT AS bin,
    count(*) AS runs,
       sum(self_ns)::BIGINT AS ns
FROM handler GROUP BY ALL;

-- table
-- Two interrupts may have one name.
WITH bin AS (
    SELECT cpu, class, name, bin, sum(runs)::BIGINT AS runs FROM rate_bin GROUP BY ALL
), kind AS (
    SELECT cpu, class, name, sum(runs)::BIGINT AS runs, max(runs) AS peak,
        map_from_entries(list((bin, runs))) AS bins
    FROM bin GROUP BY cpu, class, name
)
SELECT cpu, class, name, runs, runs / (greatest(to_ns, 1) / 1e9) AS per_second,
       peak / (getvariable('rates_width') / 1e9) AS peak,
       list_transform(range(40), lambda k: coalesce(bins[k], 0)) AS over_time
FROM kind, klogger.recording ORDER BY runs DESC, cpu, name;

-- picture
SELECT bin * getvariable('rates_width') AS begins, (bin + 1) * getvariable('rates_width') AS ends,
    shown,
       sum(runs) / (getvariable('rates_width') / 1e9) AS rate
FROM rate_bin JOIN handler_shown USING (name) GROUP BY bin, shown ORDER BY min(rank), shown, bin;

-- finding
-- A storm: in the busiest fortieth, one cause interrupts a CPU more than 5,000 times a second, more
-- often than all others together. Who sets the timers, the schema `causes` knows, and says it then.
WITH bin AS (
    SELECT cpu, bin, arg_max(name, runs) AS name, arg_max(class, runs) AS class, max(runs) AS most,
        sum(runs) AS runs
    FROM rate_bin WHERE level = 1 GROUP BY cpu, bin
), storm AS (
    SELECT cpu, name, class, count(*) AS bins,
        max(most) / (getvariable('rates_width') / 1e9) AS peak
    FROM bin WHERE most > runs / 2 AND most > 5000 * (getvariable('rates_width') / 1e9)
    GROUP BY cpu, name, class
), known AS (
    SELECT count(*) > 0 AS yes FROM klogger.event WHERE name = 'HRT_IN' AND logged > 0
)
SELECT format('{} storm: {} interrupted CPU {} up to {:,.0f} times a second, during {:.0f} % of '
              'the log{}.',
              CASE class WHEN 'timer' THEN 'Timer'
                  ELSE 'Interrupt' END, s.name, s.cpu, peak, 100 * bins / 40,
              CASE class WHEN 'timer' THEN '; who sets the timers is seen with -s causes'
                  ELSE '' END),
       (SELECT sum(ns) FROM rate_bin AS b WHERE b.cpu = s.cpu AND b.name = s.name)
       / (SELECT greatest(to_ns, 1) FROM klogger.recording) AS weight
FROM storm AS s, known WHERE NOT (class = 'timer' AND known.yes) ORDER BY weight DESC, s.cpu;

-- warning
FROM handler_warning;
