-- SPDX-License-Identifier: GPL-2.0-only
-- title: Waits by system call
-- question: In which system call, and where in the kernel, do programs wait, and how long?
-- order: 10
-- events: BLOCKED, WOKEN, BACK
-- include: _waits
-- picture: bars x=total y=what
-- combine: sum
-- column program: program
-- column call: system call that it was in; none for threads of the kernel and page faults
-- column site: function of the kernel that waits
-- column times [count]: waits
-- column total [ns, bar]: from leaving the CPU to being woken, of all threads together
-- column p50 [ns, 0.5 of each]: half of the waits are shorter
-- column max [ns, max]: the longest
-- column queued [ns]: then until it had a CPU
-- column what: call and program
-- note: 'klogger why LOG' says for whom each wait was, and what that thread did meanwhile.
-- empty: no thread in scope waited while the log was recorded

CREATE TEMP VIEW off_cpu_seen AS
SELECT pid, time, woken_ns - from_ns AS ns, to_ns - woken_ns AS queue_ns,
    CASE WHEN call < 0 THEN 'none' ELSE syscall(call) END AS call,
    coalesce(site, 'not known') AS site
FROM wait;
CREATE TEMP TABLE off_cpu AS
SELECT program, call, site, ns, queue_ns FROM klogger.with_program('off_cpu_seen');

-- table
SELECT program, call, site, count(*) AS times, sum(ns)::BIGINT AS total,
    quantile_disc(ns, 0.5) AS p50, max(ns) AS max, sum(queue_ns)::BIGINT AS queued
FROM off_cpu GROUP BY program, call, site ORDER BY total DESC, program, call, site;

-- picture
SELECT call || ' in ' || program AS what, sum(ns)::BIGINT AS total
FROM off_cpu GROUP BY call, program ORDER BY total DESC, what LIMIT 14;

-- finding
SELECT format('{} waited {} in {} ({}), of {} that all threads waited together.', program,
    duration(total), call, site, duration(sum(total) OVER ())), total / sum(total) OVER () AS weight
FROM (
    SELECT program, call, site, sum(ns)::DOUBLE AS total FROM off_cpu GROUP BY program, call, site
) WHERE total > 0 QUALIFY row_number() OVER (ORDER BY total DESC, program, call, site) = 1;

-- histogram
SELECT program, call, site, klogger.histogram_of(ns) AS each FROM off_cpu
GROUP BY program, call, site;
