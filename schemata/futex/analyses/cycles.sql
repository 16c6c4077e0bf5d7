-- SPDX-License-Identifier: GPL-2.0-only
-- title: Dead-locks
-- question: Which threads wait for each other in a circle?
-- order: 5
-- events: WAIT, WAITED, WOKE
-- include: _futex
-- column threads: each waits for the lock that the next one holds, the last one for the first's;
--     one thread alone waits for a lock that it holds
-- column locks: that they wait for, in the same order
-- column sites: functions in which they wait
-- column holders: known, if it is known of each lock who holds it; or guessed
-- column since [ns]: when the last of them began to wait
-- column lasted [ns]: until one of them went on, or the log ended
-- note: Circles of up to eight threads that lasted for 100 ms or more. The holder is what the C
--     library says: mutexes of glibc, and those with priority inheritance.
-- note: A guess is of locks that are laid out as a mutex of glibc, but may be other ones: locks of
--     the program's own, whose memory happens to have the number of a thread in that place.
-- empty: no threads waited for each other in a circle

-- A holder that wakes others gives the lock away: who holds it then, the log does not say.
CREATE TEMP TABLE cycles_edge AS
SELECT * FROM (
    SELECT w.pid, w.holder, w.known, w.tgid, w.lock, w.stack, w.from_ns,
        least(coalesce(w.to_ns, r.to_ns), coalesce(g.time, r.to_ns)) AS to_ns
    FROM (
        SELECT * REPLACE (CASE WHEN holder > 0 THEN holder ELSE guess END AS holder),
            holder > 0 AS known
        FROM futex_wait WHERE holder > 0 OR guess > 0
    ) AS w ASOF LEFT JOIN WOKE AS g
        ON g.tgid = w.tgid AND g.lock = w.lock AND g.tid = w.holder AND w.from_ns < g.time,
    klogger.recording AS r
) WHERE to_ns - from_ns >= 100_000_000;
CREATE TEMP TABLE cycles AS
WITH RECURSIVE walk AS (
    SELECT [pid] AS threads, [lock] AS locks, [stack] AS stacks, holder AS next, from_ns, to_ns,
        tgid, known
    FROM cycles_edge
    UNION ALL
    SELECT list_append(threads, e.pid), list_append(locks, e.lock), list_append(stacks, e.stack),
        e.holder, greatest(w.from_ns, e.from_ns), least(w.to_ns, e.to_ns), w.tgid,
        w.known AND e.known
    FROM walk AS w JOIN cycles_edge AS e ON e.pid = w.next AND NOT list_contains(threads, e.pid)
    WHERE len(threads) < 8
        AND least(w.to_ns, e.to_ns) - greatest(w.from_ns, e.from_ns) >= 100_000_000
)
-- Each circle once: from its smallest thread on.
SELECT row_number() OVER (ORDER BY from_ns, threads) AS id, * FROM walk
WHERE next = threads[1] AND threads[1] = list_min(threads);
CREATE TEMP TABLE cycles_shown AS
SELECT c.id, string_agg(thread(pid, from_ns), ' -> ' ORDER BY n) AS threads,
    string_agg(data(lock, tgid, from_ns), ' -> ' ORDER BY n) AS locks,
    string_agg(coalesce(s.site, '?'), ' -> ' ORDER BY n) AS sites, known, from_ns AS since,
    to_ns - from_ns AS lasted
FROM (
    SELECT id, unnest(threads) AS pid, unnest(locks) AS lock, unnest(stacks) AS stack,
        generate_subscripts(threads, 1) AS n, known, from_ns, to_ns, tgid
    FROM cycles
) AS c LEFT JOIN futex_site AS s ON s.id = c.stack
GROUP BY c.id, known, from_ns, to_ns;

-- table
SELECT threads, locks, sites, CASE WHEN known THEN 'known' ELSE 'guessed' END AS holders, since,
    lasted
FROM cycles_shown ORDER BY since, threads;

-- finding
SELECT format('{}: {} {} since {}{}.',
    CASE WHEN known THEN 'Dead-lock' ELSE 'Perhaps a dead-lock' END,
    replace(threads, ' -> ', ' and '),
    CASE WHEN contains(threads, ' -> ') THEN 'wait for each other'
        ELSE 'waits for its own lock' END,
    duration(since), CASE WHEN known THEN '' ELSE ', if these are mutexes of glibc, which the log '
        'does not say' END), CASE WHEN known THEN 1 END AS weight
FROM cycles_shown ORDER BY known DESC, since, threads LIMIT 3;
