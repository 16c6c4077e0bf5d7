-- SPDX-License-Identifier: GPL-2.0-only
-- title: Locks that are waited for
-- question: For which locks of programs do threads wait, how long, where, and who holds them?
-- order: 10
-- events: WAIT, WAITED, WOKE
-- include: _futex
-- picture: bars x=waited y=lock
-- combine: sum
-- column program: program
-- column lock: its name and process; without a name process and address
-- column site [most]: function that waits for it most often
-- column waits [count]: calls that wait
-- column waited [ns, bar]: time in them, of all threads
-- column of_all [share, waited/*]: of the time of all locks
-- column p50 [ns, apart]: half of the waits took no longer
-- column p99 [ns, apart]: 99 of 100 took no longer
-- column max [ns, max]: the longest
-- column threads [count, apart]: that waited
-- column holder [most]: thread that held it most often when another one began to wait
-- column woken_in [most]: function that wakes those that wait, most often; of a mutex the one that
--     gives it back
-- note: Locks are told apart by process and address: one that processes share is several here.
-- note: A condition, a barrier or a join is waited for in the same way, and has no holder.
-- empty: no thread in scope waited for a lock in the kernel

-- Who held a lock most often; of two that did so equally often, the thread with the lower number.
CREATE TEMP TABLE league_holder AS
SELECT tgid, lock, arg_max(holder, [times, -holder]) AS holder, max(times) AS held
FROM (
    SELECT tgid, lock, holder, count(*) AS times FROM futex_wait
    WHERE NOT broken AND ns IS NOT NULL AND holder > 0 GROUP BY ALL
) GROUP BY tgid, lock;
CREATE TEMP TABLE league_lock AS
SELECT tgid, lock, max(time) AS time, count(*) AS waits, least(sum(ns),
        9223372036854775807)::BIGINT AS waited, quantile_disc(ns, [0.5, 0.99]) AS p, max(ns) AS max,
    count(DISTINCT pid) AS threads, mode(s.site) AS site
FROM futex_wait AS w LEFT JOIN futex_site AS s ON s.id = w.stack AND w.stack > 0
WHERE NOT broken AND ns IS NOT NULL GROUP BY tgid, lock;
CREATE TEMP TABLE league AS FROM league_lock LEFT JOIN league_holder USING (tgid, lock);
CREATE TEMP TABLE league_woken AS
SELECT tgid, lock, mode(s.site) AS woken_in
FROM WOKE AS w JOIN futex_site AS s ON s.id = w.user_stack AND w.user_stack > 0
GROUP BY tgid, lock;

-- table
SELECT comm(tgid, time) AS program, futex_name(tgid, lock, time) AS lock, site, waits, waited,
    waited / greatest(sum(waited) OVER (), 1) AS of_all, p[1] AS p50, p[2] AS p99, max, threads,
    CASE WHEN holder IS NOT NULL THEN thread(holder, time) END AS holder, woken_in
FROM league LEFT JOIN league_woken USING (tgid, lock) ORDER BY waited DESC, lock;

-- picture
SELECT format('{} {}', coalesce(site, ''), data(lock, tgid, time)) AS lock, waited FROM league
ORDER BY waited DESC, lock LIMIT 15;

-- finding
-- Locks that have a holder first, as conditions and joins are waited for on purpose; but none that
-- was waited for a tenth as long as the first: of many locks the holder is not known.
WITH worst AS (FROM league WHERE 10 * waited::HUGEINT >= (SELECT max(waited) FROM league)
               ORDER BY holder IS NULL, waited DESC, lock LIMIT 1)
SELECT format('Threads waited {} for {:,} {}; {} of it for {} in {}{}.',
    duration((SELECT least(sum(waited), 9223372036854775807)::BIGINT FROM league)),
    (SELECT count(*) FROM league),
    CASE (SELECT count(*) FROM league) WHEN 1 THEN 'lock' ELSE 'locks' END,
    duration(waited), data(lock, tgid, time),
    coalesce(site, 'an unknown function'), CASE WHEN holder IS NULL THEN ''
        WHEN 2 * held > waits THEN format(', mostly held by {}', thread(holder, time))
        ELSE format(', held by {} at {:,} of {:,} waits', thread(holder, time), held, waits) END),
    least(waited / greatest((SELECT to_ns FROM klogger.recording), 1), 1) AS weight
FROM worst;

-- warning
SELECT format('Left out, because events are missing in between: {:,} {}.', count(*),
    CASE count(*) WHEN 1 THEN 'wait' ELSE 'waits' END)
FROM futex_wait WHERE broken AND to_ns IS NOT NULL HAVING count(*) > 0;
