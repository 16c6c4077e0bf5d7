-- SPDX-License-Identifier: GPL-2.0-only
-- title: CPU time by stack
-- question: By which calls did programs come to where they spent CPU time?
-- order: 30
-- events: SAMPLED
-- include: _samples
-- picture: flame x=cpu y=stack
-- combine: sum
-- column program: program
-- column samples [count]: times that it was found so
-- column cpu [ns, bar]: time for which these samples stand
-- column stack: the program, its functions from the outermost to the innermost, then those of the
--     kernel
-- note: Frames in brackets stand for frames that are missing: [unknown] for callers that could not
--     be found.
-- empty: no thread in scope was running when a sample was taken

CREATE TEMP TABLE on_cpu_stack AS
SELECT program, path, count(*) AS samples, sum(ns)::BIGINT AS total
FROM on_cpu_sample WHERE pid <> 0 GROUP BY program, path;

-- table
SELECT program, samples, total AS cpu, array_to_string(path, ';') AS stack
FROM on_cpu_stack ORDER BY cpu DESC, program, stack;

-- picture
SELECT stack, total AS cpu FROM klogger.flame('on_cpu_stack') ORDER BY total DESC, stack;

-- finding
SELECT format('The callers of {:.0f} % of the CPU time are not known, because code has no frame '
    'pointers.', 100 * part), NULL AS weight
FROM (
    SELECT coalesce(sum(total) FILTER (list_contains(path, '[unknown]')), 0)
        / nullif(sum(total), 0) AS part
    FROM on_cpu_stack
) WHERE part > 0.005;
