-- SPDX-License-Identifier: GPL-2.0-only
-- title: Who waits for whom
-- question: Which threads wait for a lock, who holds it, and what is that one waiting for?
-- order: 20
-- events: SLEEPS, RUNS, FOUND, LOCK_WAIT, LOCK_GOT, FS_FROZEN
-- include: _hang
-- picture: matrix x=holder y=waiter size=seconds
-- column waiter: thread that waits
-- column lock: that it waits for, and how
-- column holder: who holds the lock, or who froze the file system
-- column known: how the holder is known; a sleeping reader and a holder are certain, the last
--     reader may have left the lock already
-- column holder_waits: what the holder waits for in D; nothing: it ran, or slept otherwise
-- column since [ns]: when the wait began
-- column lasted [ns, bar]: how long
-- column seconds [s]: how long
-- note: Waits of 100 ms or more. Of several holders in turn, the one that had the lock for most of
--     the wait.
-- note: Semaphores, completions and wait queues do not name a holder.
-- empty: no thread waited for 100 ms for a lock

CREATE TEMP TABLE waits_for AS
SELECT hang_thread(l.pid, l.from_ns) AS waiter, hang_lock(l.lock, l.kind) AS lock,
    CASE WHEN l.known = 'frozen' THEN hang_thread(l.by_pid, l.frozen_ns)
        WHEN l.known <> 'nothing' THEN hang_thread(l.holder, l.from_ns) END AS holder,
    CASE WHEN l.known = 'frozen' THEN 'it froze ' || disk(l.device)
        WHEN l.known <> 'nothing' THEN l.known END AS known,
    CASE WHEN n.id IS NOT NULL THEN coalesce(hang_lock(n.lock, n.kind), n.site, '?') END
        AS holder_waits, greatest(l.from_ns, 0) AS since, l.ns AS lasted, l.id
FROM hang_long AS l LEFT JOIN hang_long AS n ON n.id = l.next WHERE l.lock > 0;

-- table
SELECT * EXCLUDE (id) FROM waits_for ORDER BY since, id;

-- picture
SELECT waiter, coalesce(holder, 'not known') AS holder, max(lasted) / 1e9 AS seconds
FROM waits_for GROUP BY ALL ORDER BY seconds DESC, waiter LIMIT 60;

-- finding
SELECT format('{} waited longest for a lock, {}; {}.', waiter, duration(lasted),
    CASE WHEN starts_with(known, 'it froze') THEN format('{} had frozen the file system', holder)
        WHEN holder IS NULL THEN 'its holder is not known' ELSE format('{} held it', holder) END)
FROM waits_for ORDER BY lasted DESC, id LIMIT 1;

-- warning
FROM hang_warning;
