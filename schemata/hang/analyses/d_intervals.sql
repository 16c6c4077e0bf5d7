-- SPDX-License-Identifier: GPL-2.0-only
-- title: Sleeps in D
-- question: Which threads sleep uninterruptibly, where, and for how long?
-- order: 40
-- events: SLEEPS, RUNS, FOUND
-- include: _hang
-- picture: timeline x=from_ns x2=to_ns row=thread colour=state
-- column program: program
-- column site: function that waits
-- column sleeps [count]: how many
-- column slept [ns, bar]: all of them together
-- column p50 [ns]: half of them are shorter
-- column p99 [ns]: 99 of 100 are shorter
-- column max [ns]: the longest
-- column open [count]: threads that still slept when the log ended; they count up to its end
-- column from_ns [ns]: time
-- column to_ns [ns]: end
-- column thread: thread
-- column state: state; still asleep when the log ended, or not
-- note: The picture has sleeps of 100 ms or more.
-- note: A sleep lasts until the thread has a CPU again.
-- empty: no thread in scope slept uninterruptibly

CREATE TEMP TABLE d_intervals AS
SELECT program, coalesce(p.site, '?') AS site, count(*) AS sleeps, hang_big(sum(ns)) AS slept,
    quantile_disc(ns, [0.5, 0.99]) AS p, max(ns) AS max, count(*) FILTER (open) AS open
FROM klogger.with_program('hang_sleep') LEFT JOIN hang_where AS p USING (place)
GROUP BY program, site;

-- table
SELECT program, site, sleeps, slept, p[1] AS p50, p[2] AS p99, max, open FROM d_intervals
ORDER BY slept DESC, program, site;

-- picture
SELECT greatest(from_ns, 0) AS from_ns, greatest(to_ns, 0) AS to_ns,
    hang_thread(pid, from_ns) AS thread,
    hang_kind(state) || CASE WHEN open THEN ', still asleep' ELSE '' END AS state
FROM (FROM hang_long ORDER BY ns DESC, id LIMIT 400) ORDER BY from_ns, pid;

-- finding
SELECT format('Threads slept in D {:,} times, {} together; the longest sleep was {}, of {} in {}.',
    hang_big(sum(sleeps)), duration(hang_big(sum(slept))), duration(max(max)),
    arg_max(program, max), arg_max(site, max)) FROM d_intervals HAVING count(*) > 0;

-- warning
FROM hang_warning;
