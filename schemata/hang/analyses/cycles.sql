-- SPDX-License-Identifier: GPL-2.0-only
-- title: Dead-locks in the kernel
-- question: Which threads wait for each other in a circle?
-- order: 3
-- events: SLEEPS, RUNS, FOUND, LOCK_WAIT, LOCK_GOT
-- include: _hang
-- column threads: each waits for a lock that the next one holds, the last one for the first's; one
--     thread alone waits for a lock that it holds
-- column locks: that they wait for, in the same order
-- column functions: in which they wait
-- column calls: system calls that they were in
-- column since [ns]: when the last of them began to wait
-- column lasted [ns]: until one of them went on, or the log ended
-- column open: whether all still waited when the log ended
-- note: Circles that lasted for 100 ms or more, of mutexes, rt-mutexes and rw semaphores.
-- empty: no threads waited for each other in a circle

CREATE TEMP TABLE cycles AS
SELECT c.id, greatest(c.from_ns, 0) AS since, c.to_ns - c.from_ns AS lasted,
    bool_and(l.open) AS open,
    string_agg(hang_thread(l.pid, c.from_ns), ' -> ' ORDER BY n) AS threads,
    string_agg(hang_lock(l.lock, l.kind), ' -> ' ORDER BY n) AS locks,
    string_agg(coalesce(l.site, '?'), ' -> ' ORDER BY n) AS functions,
    string_agg(coalesce(hang_call(l.call), 'none'), ' -> ' ORDER BY n) AS calls, count(*) AS number
FROM (
    SELECT id, from_ns, to_ns, unnest(path) AS sleep, generate_subscripts(path, 1) AS n
    FROM hang_cycle
) AS c JOIN hang_long AS l ON l.id = c.sleep GROUP BY c.id, c.from_ns, c.to_ns;

-- table
SELECT threads, locks, functions, calls, since, lasted, open FROM cycles ORDER BY since, id;

-- finding
SELECT format('Dead-lock: {} {} since {}.', replace(threads, ' -> ', ' and '),
    CASE number WHEN 1 THEN 'waits for its own lock' ELSE 'wait for each other' END,
    duration(since)), 1 AS weight
FROM cycles ORDER BY since, id LIMIT 3;

-- warning
FROM hang_warning;
