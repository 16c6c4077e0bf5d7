-- SPDX-License-Identifier: GPL-2.0-only
-- title: Who sits with whom
-- question: Which threads sit on the same CPU, and do they get into each other's way there?
-- order: 62
-- events: SCHEDIN, SCHEDOUT
-- include: _quantum
-- picture: matrix x=other y=thread size=together
-- column thread: program and thread id
-- column other: the thread that it is compared with
-- column known [ns]: from when both have run until one of them has run for the last time
-- column together [share, bar]: of that time, how much both sat on one CPU: ran there, or had run
--     there last
-- column swaps [count]: times that the CPU went directly from one to the other
-- note: The picture's numbers are percent.
-- note: The eight threads with the most CPU time. A thread that sleeps sits on the CPU on which it
--     ran last.
-- empty: fewer than two threads in scope were switched in and out while the log was recorded

CREATE TEMP TABLE placement_thread AS
SELECT pid, format('{}[{}]', arg_max(program, to_ns), pid) AS thread, min(from_ns) AS from_ns,
    max(to_ns) AS to_ns,
       row_number() OVER (ORDER BY sum(to_ns - from_ns) DESC, pid) AS rank
FROM quantum GROUP BY pid QUALIFY rank <= 8;
-- A thread sits on a CPU from when it first runs there until it runs on another one.
CREATE TEMP TABLE placement_seat AS
SELECT pid, cpu, from_ns FROM quantum SEMI JOIN placement_thread USING (pid)
QUALIFY cpu IS DISTINCT FROM lag(cpu) OVER (PARTITION BY pid ORDER BY from_ns);
CREATE TEMP TABLE placement_pair AS
WITH pair AS (
    SELECT a.pid AS pid, b.pid AS other_pid, a.thread, b.thread AS other, a.rank,
        b.rank AS other_rank,
           least(a.to_ns, b.to_ns) AS until,
           greatest(until - greatest(a.from_ns, b.from_ns), 0) AS known
    FROM placement_thread AS a JOIN placement_thread AS b ON a.rank < b.rank
), walk AS (
    -- Each change of either in the order of time, and where both sit from then on: a join of seats
    -- would be quadratic.
    SELECT p.pid, p.other_pid, s.from_ns, lead(s.from_ns, 1, until) OVER times AS to_ns, until,
           last_value(CASE s.pid WHEN p.pid THEN s.cpu END IGNORE NULLS) OVER times AS cpu,
           last_value(CASE s.pid
               WHEN p.other_pid THEN s.cpu END IGNORE NULLS) OVER times AS other_cpu
    FROM pair AS p JOIN placement_seat AS s ON s.pid IN (p.pid, p.other_pid)
    WINDOW times AS (PARTITION BY p.pid, p.other_pid ORDER BY s.from_ns)
), seated AS (
    SELECT pid, other_pid, sum(least(to_ns, until) - from_ns) AS ns
    FROM walk WHERE cpu = other_cpu AND from_ns < until GROUP BY ALL
), swapped AS (
    SELECT least(pid, next) AS low, greatest(pid, next) AS high, count(*) AS swaps
    FROM quantum SEMI JOIN placement_thread USING (pid)
    WHERE next IN (SELECT pid FROM placement_thread) GROUP BY ALL
)
SELECT p.* EXCLUDE (until), coalesce(s.ns, 0) AS ns, coalesce(w.swaps, 0) AS swaps
FROM pair AS p LEFT JOIN seated AS s USING (pid, other_pid)
LEFT JOIN swapped AS w ON w.low = least(p.pid, p.other_pid)
    AND w.high = greatest(p.pid, p.other_pid);

-- table
SELECT thread, other, known, ns / nullif(known, 0) AS together, swaps FROM placement_pair
ORDER BY rank, other_rank;

-- picture
SELECT thread, other, ns / nullif(known, 0) AS together FROM placement_pair
ORDER BY rank, other_rank;

-- finding
SELECT format('{} and {} sat on one CPU for {:.0f} % of the time for which the log has both, and '
              '{} it went directly from one to the other.',
              thread, other, 100 * ns / known,
              CASE swaps WHEN 1 THEN 'once' ELSE format('{:,} times', swaps) END)
FROM placement_pair
WHERE ns > 0.5 * known AND swaps > 0 AND len((SELECT cpus FROM klogger.recording)) > 1
ORDER BY swaps DESC, rank, other_rank LIMIT 1;

-- warning
FROM quantum_warning;
