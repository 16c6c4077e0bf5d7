-- SPDX-License-Identifier: GPL-2.0-only
-- title: Root causes
-- question: What do all those wait for in the end who slept in D for long?
-- order: 5
-- events: SLEEPS, RUNS, FOUND, LOCK_WAIT, LOCK_GOT, FS_FROZEN
-- include: _hang
-- picture: bars x=waited y=root
-- column root: what the last one of the chain waits for
-- column kind: dead-lock, frozen file system, holder (of a lock; it ran, or slept otherwise), lock
--     (its holder is not known), freezer, child, device, or other
-- column threads [count]: that wait for it, directly or for each other
-- column direct [count]: of them, directly
-- column first [ns]: when the first began to wait; 0: then, or before the log
-- column lasted [ns]: until the last went on, or the log ended
-- column waited [ns, bar]: time of all of them together
-- column open [count]: threads that still waited when the log ended
-- note: Sleeps of 100 ms or more.
-- empty: no thread slept in D for 100 ms

CREATE TEMP TABLE causes AS
SELECT root, cause AS kind, count(DISTINCT pid) AS threads,
    count(DISTINCT pid) FILTER (depth = 0) AS direct,
    greatest(min(from_ns), 0) AS first,
    greatest(max(to_ns) - min(from_ns), 0) AS lasted, hang_big(sum(ns)) AS waited,
    count(DISTINCT pid) FILTER (open) AS open, max(to_ns) AS last
FROM hang_long JOIN hang_chain USING (id) GROUP BY root, cause;

-- table
SELECT * EXCLUDE (last) FROM causes ORDER BY waited DESC, root;

-- picture
SELECT root, waited FROM causes ORDER BY waited DESC, root LIMIT 15;

-- finding
SELECT format('{:,} {} {} for {}, for {}.', threads, CASE threads WHEN 1 THEN 'thread' ELSE
        'threads' END, CASE WHEN open > 0 THEN 'still wait' ELSE 'waited' END, root,
        duration(lasted)),
    least(lasted / greatest(last, 1), 1) AS weight
FROM causes WHERE kind IN ('dead-lock', 'frozen file system', 'holder', 'lock')
ORDER BY waited DESC, root LIMIT 3;

-- warning
FROM hang_warning;
