-- SPDX-License-Identifier: GPL-2.0-only
-- title: CPU time by function
-- question: In which functions was the CPU time spent, and on behalf of which?
-- order: 20
-- events: SAMPLED
-- include: _samples
-- picture: bars x=self y=what
-- combine: sum
-- column program: program
-- column function: function; of the kernel with [k] behind it
-- column samples [count]: times that it was found running itself
-- column self [ns, bar]: time in the function itself
-- column total [ns]: in it, or in what it has called
-- column share [share, apart]: `self` as a part of the CPU time of its program
-- column what: function and program
-- note: A function that calls itself counts once in `total`. Frames in brackets stand for frames
--     that are missing.
-- empty: no thread in scope was running when a sample was taken

CREATE TEMP TABLE on_cpu_function AS
WITH busy AS (FROM on_cpu_sample WHERE pid <> 0), within AS (
    SELECT program, unnest(list_distinct(path[2:])) AS frame, ns FROM busy
), total AS (
    SELECT program, frame, sum(ns)::BIGINT AS total FROM within GROUP BY program, frame
), alone AS (
    SELECT program, path[-1] AS frame, count(*) AS samples, sum(ns)::BIGINT AS self
    FROM busy GROUP BY program, frame
)
SELECT program, replace(frame, '_[k]', ' [k]') AS function, coalesce(samples, 0) AS samples,
    coalesce(self, 0) AS self, total
FROM total LEFT JOIN alone USING (program, frame);

-- table
SELECT program, function, samples, self, total,
    self / nullif(sum(self) OVER (PARTITION BY program), 0) AS share
FROM on_cpu_function ORDER BY self DESC, total DESC, program, function;

-- picture
SELECT function || ' in ' || program AS what, self
FROM on_cpu_function WHERE self > 0 ORDER BY self DESC, what LIMIT 14;

-- finding
SELECT format('{} took {:.0f} % of the CPU time of {} itself.', function, 100 * self / whole,
    program), self / "all" AS weight
FROM (SELECT *, sum(self) OVER (PARTITION BY program) AS whole, sum(self) OVER () AS "all"
    FROM on_cpu_function)
WHERE self > 0 QUALIFY row_number() OVER (ORDER BY self DESC, program, function) = 1;
