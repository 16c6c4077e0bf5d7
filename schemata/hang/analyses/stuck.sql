-- SPDX-License-Identifier: GPL-2.0-only
-- title: Stuck threads
-- question: Which threads slept in D for too long, since when, where, and for which lock?
-- order: 10
-- events: SLEEPS, RUNS, FOUND, LOCK_WAIT, LOCK_GOT, FS_FROZEN, HANG
-- include: _hang
-- picture: bars x=lasted y=thread
-- column thread: thread
-- column state: D, killable (SIGKILL ends it, and the kernel never reports it) or frozen
-- column since [ns]: when it began; 0: then, or before the log
-- column before [ns]: how long it had slept when the log began
-- column lasted [ns, bar]: how long in all, or until the log ended
-- column open: whether it still slept then
-- column call: system call that it was in
-- column functions: where it waits: functions, the innermost first
-- column lock: that it waits for
-- column holder: who holds that lock
-- column reported [ns]: when the kernel reported it as hung
-- note: As long as the parameter `stuck` of the recording says: klogger record --set stuck=1s; and
--     all that the kernel reported.
-- note: No holder: the kind of lock does not name one, or the wait began before the log.
-- empty: no thread in scope slept in D for so long

CREATE TEMP TABLE stuck AS
SELECT l.*, min(h.time) AS reported FROM hang_long AS l LEFT JOIN HANG AS h
    ON h.pid = l.pid AND h.time >= l.from_ns AND h.time <= l.to_ns, hang_limit AS t
WHERE l.ns >= t.ns OR h.pid IS NOT NULL GROUP BY ALL;

-- table
SELECT hang_thread(pid, from_ns) AS thread, hang_kind(state) AS state,
    greatest(from_ns, 0) AS since,
    CASE WHEN from_ns < 0 THEN -from_ns END AS before, ns AS lasted, open,
    hang_call(call) AS call, functions, hang_lock(lock, kind) AS lock,
    CASE WHEN holder > 0 AND known <> 'nothing' THEN hang_thread(holder, from_ns) END AS holder,
    CASE WHEN reported >= 0 THEN reported END AS reported
FROM stuck ORDER BY lasted DESC, from_ns, pid;

-- picture
SELECT hang_thread(pid, from_ns) AS thread, max(ns) AS lasted FROM stuck
GROUP BY ALL ORDER BY lasted DESC, thread LIMIT 30;

-- finding
SELECT format('{:,} {} stuck; the first was {}, since {}, in {}.', count(*),
    CASE count(*) WHEN 1 THEN 'thread is' ELSE 'threads are' END,
    hang_thread(arg_min(pid, {'a': from_ns, 'b': id}), min(from_ns)),
    CASE WHEN min(from_ns) < 0 THEN duration(-min(from_ns)) || ' before the log began'
        ELSE duration(min(from_ns)) END,
    coalesce(arg_min(site, {'a': from_ns, 'b': id}), 'an unknown function')),
    least(max(ns) / greatest(any_value(to_ns), 1), 1) AS weight
FROM stuck HAVING count(*) > 0;

-- warning
FROM hang_warning;
