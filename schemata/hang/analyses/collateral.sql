-- SPDX-License-Identifier: GPL-2.0-only
-- title: Collateral damage
-- question: Which other threads were drawn into it, when, and in which system call?
-- order: 30
-- events: SLEEPS, RUNS, FOUND, LOCK_WAIT, LOCK_GOT, FS_FROZEN
-- include: _hang
-- picture: timeline x=from_ns x2=to_ns row=thread colour=root
-- column joined [ns]: when it began to wait; 0: then, or before the log
-- column later [ns]: after the first that waits for the same root
-- column thread: thread
-- column call: system call that it was in
-- column waits_for: thread that holds its lock
-- column depth [count]: how many threads are between it and the root
-- column lasted [ns, bar]: how long it waited
-- column root: root cause
-- column from_ns [ns]: time
-- column to_ns [ns]: end
-- note: Sleeps of 100 ms or more that wait for another thread, or with others for the same root.
-- empty: no thread waited for another one that slept in D

CREATE TEMP TABLE collateral AS
SELECT l.*, c.root, c.depth, c.cause,
    l.from_ns - min(l.from_ns) OVER (PARTITION BY c.root) AS later
FROM hang_long AS l JOIN hang_chain AS c USING (id)
WHERE c.cause IN ('dead-lock', 'frozen file system', 'holder', 'lock') OR c.depth > 0;

-- table
SELECT greatest(from_ns, 0) AS joined, later, hang_thread(pid, from_ns) AS thread,
    hang_call(call) AS call,
    
    CASE WHEN known NOT IN ('frozen', 'nothing') THEN hang_thread(holder, from_ns) END
        AS waits_for, depth, ns AS lasted, root
FROM collateral ORDER BY root, from_ns, id;

-- picture
SELECT greatest(from_ns, 0) AS from_ns, greatest(to_ns, 0) AS to_ns,
    hang_thread(pid, from_ns) AS thread, root
FROM (FROM collateral ORDER BY ns DESC, id LIMIT 400) ORDER BY root, from_ns, pid;

-- finding
SELECT format('{:,} {} for others who wait for {}; the last, {}, joined {} after the first{}.',
    count(*) FILTER (depth > 0),
    CASE count(*) FILTER (depth > 0) WHEN 1 THEN 'thread waits' ELSE 'threads wait' END, root,
    hang_thread(arg_max(pid, {'a': later, 'b': id}), max(from_ns)), duration(max(later)),
    coalesce(', in ' || arg_max(hang_call(call), {'a': later, 'b': id}), '')),
    least((max(to_ns) - min(from_ns)) / greatest(max(to_ns), 1), 1) AS weight
FROM collateral WHERE cause <> 'dead-lock' GROUP BY root
HAVING count(*) FILTER (depth > 0) > 0 ORDER BY count(*) FILTER (depth > 0) DESC, root LIMIT 2;

-- warning
FROM hang_warning;
