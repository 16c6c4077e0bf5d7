-- SPDX-License-Identifier: GPL-2.0-only
-- title: Page faults
-- question: Which programs fault, how often, and for what?
-- order: 20
-- events: FAULT
-- picture: stacked x=faults y=program colour=what
-- combine: sum
-- column program: program
-- column faults [count, bar]: how often
-- column per_second [per_s, faults/seconds]: in each second of the log
-- column writes [share, of faults]: part that wanted to write
-- column fetches [share, of faults]: part that wanted to run code
-- column by_kernel [share, of faults]: part that the kernel met on the program's behalf
-- column pages [count, apart]: different pages (4 KiB)
-- column what: what was wanted
-- note: Faults that the kernel answers from memory (minor) and from disk (major) look alike here.
-- empty: no thread in scope had a page fault while the log was recorded

CREATE TEMP VIEW fault_at AS SELECT pid, time, addr, error, user FROM FAULT;
CREATE TEMP TABLE fault AS
SELECT program, addr // 4096 AS page, user = 0 AS by_kernel,
       CASE WHEN error & 16 <> 0 THEN 'run' WHEN error & 2 <> 0 THEN 'write' ELSE 'read' END AS what
FROM klogger.with_program('fault_at');

-- table
SELECT program, count(*) AS faults, count(*) / (greatest(any_value(to_ns), 1) / 1e9) AS per_second,
       avg((what = 'write')::INTEGER) AS writes, avg((what = 'run')::INTEGER) AS fetches,
       avg(by_kernel::INTEGER) AS by_kernel,
       count(DISTINCT page) AS pages
FROM fault, klogger.recording GROUP BY program ORDER BY faults DESC, program;

-- picture
WITH most AS (SELECT program, row_number() OVER (ORDER BY count(*) DESC, program) AS rank FROM fault
    GROUP BY program)
SELECT CASE WHEN rank <= 14 THEN program ELSE 'other' END AS program, what, count(*) AS faults
FROM fault JOIN most USING (program) GROUP BY ALL ORDER BY min(rank), what;

-- finding
SELECT format('{:,} page faults, {:.0f} % of them of {}.', sum(n)::BIGINT, 100 * max(n) / sum(n),
    arg_max(program, n))
FROM (SELECT program, count(*) AS n FROM fault GROUP BY program) HAVING sum(n) > 0;
