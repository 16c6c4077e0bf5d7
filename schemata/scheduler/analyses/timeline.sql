-- SPDX-License-Identifier: GPL-2.0-only
-- title: Who ran where
-- question: Which program had which CPU, and when?
-- order: 70
-- events: SCHEDIN, SCHEDOUT
-- include: _quantum, _cause
-- picture: timeline x=begins x2=ends row=cpu colour=program y=low y2=high
-- column cpu: CPU
-- column used [share, bar]: part of the log's length in which a recorded thread had this CPU
-- column most: the program that had it longest, and its part of the log's length
-- column quanta [count]: times that the CPU was given to a recorded thread
-- column over_time [spark]: use of the CPU in each fortieth of the log
-- column begins [ns]: time since the log's start
-- column ends [ns]: end of the quantum, or of the bin
-- column program: program
-- column low [share]: where its part of the bin begins
-- column high [share]: where its part of the bin ends
-- note: Empty: the CPU was idle, or had a thread that was not recorded (outside the workload).
-- note: With more than 3,000 quanta, a PNG shows for each bin of time and CPU how much of it each
--     program had, from below in the order in which they first had the CPU in it.
-- empty: no thread in scope was switched in and out while the log was recorded

-- About 3,000 marks: as many bins as these allow (a multiple of 40, for the small bars of the
-- table), and in each as many programs; what is left of a bin is one mark. Of more than 64 CPUs,
-- the 64 with the most quanta are drawn.
CREATE TEMP TABLE timeline_cpu AS
SELECT cpu, count(*) AS quanta, row_number() OVER (ORDER BY count(*) DESC, cpu) <= 64 AS drawn
FROM quantum GROUP BY cpu;
SET VARIABLE timeline_cpus = (SELECT greatest(count(*), 1) FROM timeline_cpu WHERE drawn);
SET VARIABLE timeline_bins = 40 * greatest(15 // getvariable('timeline_cpus'), 1);
SET VARIABLE timeline_programs = greatest(3000 // (getvariable('timeline_bins')
    * getvariable('timeline_cpus')), 1);
SET VARIABLE timeline_width = (SELECT to_ns // getvariable('timeline_bins') + 1
    FROM klogger.recording);
CREATE TEMP TABLE timeline_bin AS
WITH split AS (
    SELECT cpu, program, from_ns, to_ns,
           unnest(range(from_ns // getvariable('timeline_width')::BIGINT,
               to_ns // getvariable('timeline_width')::BIGINT + 1)) AS bin
    FROM quantum
)
SELECT cpu, program, bin,
       sum(least(to_ns, (bin + 1) * getvariable('timeline_width')::BIGINT)
           - greatest(from_ns, bin * getvariable('timeline_width')::BIGINT))::BIGINT AS ns,
       min(greatest(from_ns, bin * getvariable('timeline_width')::BIGINT)) AS first_ns
FROM split GROUP BY ALL;

-- table
WITH part AS (
    SELECT cpu, 40 * bin // getvariable('timeline_bins') AS k, sum(ns) AS ns FROM timeline_bin
    GROUP BY ALL
), best AS (
    SELECT cpu, program, sum(ns) AS ns FROM timeline_bin GROUP BY ALL
), used AS (
    SELECT cpu, sum(ns) AS ns, arg_max(program, ns) AS program, max(ns) AS most FROM best
    GROUP BY cpu
)
SELECT cpu, u.ns / nullif(r.to_ns, 0) AS used,
    format('{} {:.0f} %', program, 100 * u.most / nullif(r.to_ns, 0)) AS most,
       quanta,
       (SELECT list(coalesce(p.ns, 0) ORDER BY b.k) FROM range(40) AS b(k)
           LEFT JOIN part AS p ON p.k = b.k AND p.cpu = u.cpu)
           AS over_time
FROM used AS u JOIN timeline_cpu AS c USING (cpu), klogger.recording AS r ORDER BY cpu;

-- picture
WITH few AS (
    SELECT count(*) <= 3000 AS yes FROM quantum
), exact AS (
    SELECT cpu, shown AS program, from_ns AS begins, to_ns AS ends, 0.0 AS low, 1.0 AS high
    FROM quantum JOIN quantum_program USING (program) JOIN timeline_cpu USING (cpu), few
    WHERE few.yes AND drawn
), ranked AS (
    SELECT cpu, bin, shown, rank, b.ns, b.first_ns,
        row_number() OVER (PARTITION BY cpu, bin ORDER BY b.ns DESC, rank) AS place
    FROM timeline_bin AS b JOIN quantum_program AS p USING (program)
    JOIN timeline_cpu USING (cpu), few
    WHERE NOT few.yes AND drawn
), part AS (
    SELECT cpu, bin, CASE WHEN place <= getvariable('timeline_programs') THEN shown
        ELSE 'other' END AS program,
           min(first_ns) AS first_ns, sum(ns) / getvariable('timeline_width') AS part
    FROM ranked GROUP BY ALL
), stacked AS (
    SELECT *, sum(part) OVER (PARTITION BY cpu, bin ORDER BY first_ns, program) AS top
    FROM part
)
SELECT cpu, program, begins, ends, low, high FROM exact
UNION ALL
SELECT cpu, program, bin * getvariable('timeline_width'),
       least((bin + 1) * getvariable('timeline_width'), (SELECT to_ns FROM klogger.recording)),
       round(top - part, 3), round(top, 3)
FROM stacked WHERE part > 0.004 ORDER BY cpu, begins, low;

-- finding
SELECT format('CPU {} was used by recorded threads for {:.0f} % of the time, CPU {} for {:.0f} %.',
              arg_max(cpu, used), 100 * max(used), arg_min(cpu, used), 100 * min(used))
FROM (SELECT cpu, sum(b.ns) / max(r.to_ns) AS used FROM timeline_bin AS b, klogger.recording AS r
    GROUP BY cpu)
HAVING count(*) > 1;

-- warning
FROM quantum_warning;
