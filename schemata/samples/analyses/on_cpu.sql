-- SPDX-License-Identifier: GPL-2.0-only
-- title: CPU time by program
-- question: Which programs had the CPUs, in their own code and in the kernel?
-- order: 10
-- events: SAMPLED
-- include: _samples
-- picture: stacked x=ns y=what colour=mode
-- combine: sum
-- column program: program
-- column samples [count]: times that it was found running
-- column cpu [ns, bar]: time for which these samples stand
-- column own [ns]: of that, in the program's own code and its libraries
-- column kernel [ns]: and in the kernel
-- column share [share, apart]: part of the CPU time of all programs in the log
-- column what: program
-- column mode: whose code was running
-- column ns [ns]: CPU time
-- note: A sample is as likely as its time is long: of n samples, the share is known to about
--     1/sqrt(n) of itself. Idle CPUs are not counted.
-- empty: no thread in scope was running when a sample was taken

CREATE TEMP TABLE on_cpu_program AS
SELECT program, count(*) AS samples, sum(ns)::BIGINT AS cpu,
    coalesce(sum(ns) FILTER ("user"), 0)::BIGINT AS own
FROM on_cpu_sample WHERE pid <> 0 GROUP BY program;

-- table
SELECT program, samples, cpu, own, cpu - own AS kernel,
    coalesce(cpu / nullif(sum(cpu) OVER (), 0), 0) AS share
FROM on_cpu_program ORDER BY cpu DESC, program;

-- picture
WITH most AS (FROM on_cpu_program ORDER BY cpu DESC, program LIMIT 14)
SELECT what, mode, ns FROM (
    SELECT program AS what, cpu, 'own code' AS mode, own AS ns FROM most
    UNION ALL SELECT program, cpu, 'kernel', cpu - own FROM most
) WHERE ns > 0 ORDER BY cpu DESC, what, mode DESC;

-- finding
SELECT format('{} had {:.0f} % of the CPU time: {:.0f} % of it in its own code, {:.0f} % in the '
    'kernel.', program, 100 * share, 100 * own / cpu, 100 - 100 * own / cpu), share AS weight
FROM (SELECT *, coalesce(cpu / nullif(sum(cpu) OVER (), 0), 0) AS share FROM on_cpu_program)
WHERE cpu > 0 QUALIFY row_number() OVER (ORDER BY cpu DESC, program) = 1;
