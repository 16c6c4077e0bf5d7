-- SPDX-License-Identifier: GPL-2.0-only
-- What all analyses of `hang` share.
--
-- hang_sleep: each sleep in D: id, pid, from_ns (below 0: before the log began), to_ns, open (it
--   still slept when the log ended), state, call, place (joins hang_place), reads.
--   The kernel may leave out a switch. So who sleeps at the end is who is in FOUND; if the recorder
--   was killed, it is who has not gone on.
-- hang_long: those of 100 ms or more, with the lock that the thread waits for, the holder, and
--   `next`: the sleep of the holder meanwhile.
-- hang_chain: for each of these, where following `next` leads: `root`, of the kind `cause`, and
--   `depth` steps to it.

-- A time, also of a damaged log.
CREATE TEMP MACRO hang_ns(x) AS
    CASE WHEN x > 1_000_000_000_000_000_000 THEN 0 ELSE x END::BIGINT;
CREATE TEMP MACRO hang_big(x) AS
    CASE WHEN x > 9223372036854775807 THEN 9223372036854775807 ELSE x END::BIGINT;

CREATE TEMP MACRO hang_function(frame) AS regexp_replace(frame, '\+0x.*$', '');

CREATE TEMP TABLE hang_found AS
SELECT row_number() OVER (ORDER BY time, pid) AS number, * FROM FOUND;
CREATE TEMP TABLE hang_place AS
SELECT id AS place, list_transform(frames, lambda f: hang_function(f)) AS frames
FROM klogger.stack WHERE kind = 'kernel'
UNION ALL
-- Places of FOUND have negative numbers.
SELECT -number, list(hang_function(code(frame)) ORDER BY place)
FROM (
    SELECT number, unnest(frames) AS frame, generate_subscripts(frames, 1) AS place FROM hang_found
) WHERE frame > 0 GROUP BY number;
CREATE TEMP TABLE hang_where AS
SELECT place, klogger.place(frames) AS site,
    array_to_string(list_slice(klogger.places(frames), 1, 4), ' < ') AS functions,
    list_has_any(frames, ['percpu_rwsem_wait', '__percpu_down_read'])
        AND list_has_any(frames, ['mnt_want_write', 'mnt_want_write_file', 'vfs_write',
            'sb_start_write', 'file_start_write', 'ext4_page_mkwrite', 'filemap_page_mkwrite',
            'do_page_mkwrite', '__sb_start_write']) AS freeze,
    len(list_filter(frames, lambda f: regexp_matches(f, '^_*(mutex_lock|rwsem_down|down_read'
        '|down_write|rt_mutex_slowlock|percpu_rwsem_wait|percpu_down)'))) > 0
    -- Stacks of FOUND have no functions of locks. These take that of an address space.
    OR list_contains(['__access_remote_vm', 'vm_mmap_pgoff', '__vm_munmap', 'do_mprotect_pkey',
        'lock_mm_and_find_vma', 'exit_mm', 'proc_pid_cmdline_read', 'm_start', 'do_madvise',
        '__x64_sys_brk', 'dup_mmap', '__get_user_pages_remote'], frames[1]) AS locks,
    len(list_filter(frames, lambda f: regexp_matches(f, '^_*(io_schedule|folio_wait|wait_on_buffer'
        '|submit_bio_wait|wb_wait_for|blk_mq_get_tag|blk_execute_rq|jbd2_log_wait|bit_wait_io'
        '|balance_dirty_pages|rpc_wait)'))) > 0 AS io,
    list_has_any(frames, ['kernel_clone', '_do_fork']) AS child
FROM hang_place;

-- Steps of each thread: into a sleep, and out of it. `since`: when this sleep began.
CREATE TEMP TABLE hang_step AS
SELECT pid, time, time AS since, tgid, call, state, stack::BIGINT AS place, reads, 0::UBIGINT
    AS lock, 0 AS holder, 0 AS kind, false AS shared, true AS sleeps, NULL AS waker
FROM SLEEPS
UNION ALL
SELECT pid, time, time - hang_ns(asleep), tgid, call, state, -number, 0, lock, holder, kind, shared,
    true, NULL
FROM hang_found WHERE NOT last
UNION ALL
SELECT pid, time, time - hang_ns(slept), NULL, NULL, NULL, NULL, 0, 0, 0, 0, false, false, waker
FROM RUNS;
CREATE TEMP TABLE hang_pair AS
SELECT *, lead(sleeps) OVER w AS next_sleeps, lead(time) OVER w AS until,
    lead(waker) OVER w AS next_waker, lag(sleeps) OVER w AS before_sleeps
FROM hang_step WINDOW w AS (PARTITION BY pid ORDER BY time, sleeps);
-- A sleep that is followed by another one has lost its end; an end alone tells how long it was.
CREATE TEMP VIEW hang_span AS
SELECT pid, since AS from_ns, until AS to_ns, tgid, call, state, place, reads, lock, holder, kind,
    shared, next_waker AS waker, time AS seen_ns FROM hang_pair
WHERE sleeps AND coalesce(NOT next_sleeps, true)
UNION ALL
SELECT pid, since, time, NULL, NULL, 2, NULL, 0, 0, 0, 0, false, waker, since FROM hang_pair
WHERE NOT sleeps AND coalesce(NOT before_sleeps, true)
UNION ALL
-- Found asleep at the end, and not before: the beginning was overwritten or lost.
SELECT f.pid, f.time - hang_ns(f.asleep), NULL, f.tgid, f.call, f.state, -f.number, 0, 0, 0, 0,
    false, NULL, f.time
FROM hang_found AS f
LEFT JOIN (SELECT pid, time FROM hang_pair WHERE sleeps AND until IS NULL) AS o
    ON o.pid = f.pid AND o.time <= f.time
WHERE f.last AND o.pid IS NULL;
CREATE TEMP TABLE hang_open AS
SELECT NULL AS place, pid, from_ns, to_ns FROM hang_span WHERE to_ns IS NULL;
CREATE TEMP TABLE hang_sleep AS
SELECT row_number() OVER (ORDER BY s.from_ns, s.pid) AS id, s.pid, greatest(s.from_ns, 0) AS time,
    s.tgid, s.from_ns, coalesce(s.to_ns, r.to_ns) AS to_ns, s.to_ns IS NULL AS open,
    greatest(coalesce(s.to_ns, r.to_ns) - s.from_ns, 0) AS ns, s.state, s.call, s.place, s.reads,
    s.lock, s.holder, s.kind, s.shared, s.waker, s.seen_ns
FROM hang_span AS s LEFT JOIN (
    SELECT b.pid, b.from_ns FROM klogger.broken('hang_open', ['RUNS']) AS b
    LEFT JOIN (SELECT DISTINCT pid FROM hang_found WHERE last) AS f ON f.pid = b.pid,
    klogger.recording AS r WHERE (b.broken OR r.finished) AND f.pid IS NULL
) AS lost ON s.to_ns IS NULL AND lost.pid = s.pid AND lost.from_ns = s.from_ns,
klogger.recording AS r
WHERE lost.pid IS NULL;
CREATE TEMP TABLE hang_left_out AS
SELECT (SELECT count(*) FROM hang_pair WHERE sleeps AND next_sleeps)
    + (SELECT count(*) FROM hang_open) - (SELECT count(*) FROM hang_sleep WHERE open) AS sleeps;

-- What each thread waits for, and what is known of holders, of locks that are waited for at all.
CREATE TEMP TABLE hang_lock_step AS
SELECT tid, time, lock, holder, kind, shared, true AS waits FROM LOCK_WAIT
UNION ALL SELECT tid, time, lock, tid, 0, false, false FROM LOCK_GOT WHERE error = 0
UNION ALL SELECT tid, time, lock, 0, 0, false, false FROM LOCK_GOT WHERE error <> 0;
CREATE TEMP TABLE hang_waiting AS
SELECT s.* EXCLUDE (lock, holder, kind, shared),
    CASE WHEN s.lock > 0 THEN s.lock WHEN l.waits THEN l.lock ELSE 0 END AS lock,
    CASE WHEN s.lock > 0 THEN s.kind WHEN l.waits THEN l.kind ELSE 0 END AS kind,
    CASE WHEN s.lock > 0 THEN s.holder WHEN l.waits THEN l.holder ELSE 0 END AS first_holder,
    CASE WHEN s.lock > 0 THEN s.shared WHEN l.waits THEN l.shared ELSE false END AS shared
FROM (SELECT * FROM hang_sleep WHERE ns >= 100_000_000) AS s
ASOF LEFT JOIN hang_lock_step AS l ON l.tid = s.pid AND s.seen_ns >= l.time;

-- Who holds the lock for the longest part of the wait: others may have it in turn.
CREATE TEMP TABLE hang_held AS
SELECT id, holder, sum(until - since) AS ns
FROM (
    SELECT id, holder, since, to_ns, lead(since, 1, to_ns) OVER (PARTITION BY id ORDER BY since)
        AS until
    FROM (
        SELECT id, first_holder AS holder, from_ns AS since, to_ns FROM hang_waiting WHERE lock > 0
        UNION ALL
        SELECT w.id, l.holder, l.time, w.to_ns FROM hang_waiting AS w JOIN hang_lock_step AS l
            ON l.lock = w.lock AND l.time > w.seen_ns AND l.time < w.to_ns
        WHERE w.lock > 0 AND l.holder > 0 AND l.tid <> w.pid
    )
) GROUP BY id, holder;
CREATE TEMP TABLE hang_holder AS
SELECT id, arg_max(holder, ns) AS holder FROM hang_held GROUP BY id;
-- A thread that sleeps and holds a lock for reading is certain. Of several, one that itself waits
-- for a lock comes first.
CREATE TEMP TABLE hang_reader AS
SELECT w.id, arg_min(h.pid, {'a': h.lock = 0, 'b': h.from_ns, 'c': h.pid}) AS holder,
    count(DISTINCT h.pid) AS readers
FROM hang_waiting AS w JOIN hang_waiting AS h
    ON h.reads = w.lock AND h.from_ns < w.to_ns AND w.from_ns < h.to_ns
WHERE w.lock > 0 GROUP BY w.id;
-- The lock of a file system that was frozen meanwhile.
CREATE TEMP TABLE hang_thaw AS
SELECT f.first, f.behind, f.device, f.tid, f.time AS from_ns, min(t.time) AS to_ns
FROM FS_FROZEN AS f LEFT JOIN FS_FROZEN AS t
    ON t.first = f.first AND NOT t.frozen AND t.result = 0 AND t.time > f.time
WHERE f.frozen AND f.result = 0 GROUP BY ALL;
CREATE TEMP TABLE hang_freeze AS
SELECT w.id, arg_max(f.device, f.from_ns) AS device, arg_max(f.tid, f.from_ns) AS by_pid,
    max(f.from_ns) AS frozen_ns
FROM hang_waiting AS w JOIN hang_thaw AS f ON w.lock >= f.first AND w.lock < f.behind
    AND f.from_ns < w.to_ns AND (f.to_ns IS NULL OR f.to_ns > w.from_ns)
WHERE w.lock > 0 GROUP BY w.id;

CREATE TEMP TABLE hang_known AS
SELECT w.*, coalesce(r.holder, h.holder, 0) AS holder, f.device, f.by_pid, f.frozen_ns,
    CASE WHEN f.id IS NOT NULL THEN 'frozen' WHEN w.lock = 0 THEN 'nothing'
        WHEN r.holder IS NOT NULL THEN 'sleeping reader'
        WHEN coalesce(h.holder, 0) = 0 THEN 'nothing'
        WHEN w.shared AND h.holder = w.first_holder THEN 'last reader' ELSE 'holder' END AS known
FROM hang_waiting AS w LEFT JOIN hang_holder AS h USING (id) LEFT JOIN hang_reader AS r USING (id)
LEFT JOIN hang_freeze AS f USING (id);
CREATE TEMP TABLE hang_next AS
SELECT k.id, arg_max(n.id, {'a': least(k.to_ns, n.to_ns) - greatest(k.from_ns, n.from_ns),
    'b': -n.id}) AS next
FROM hang_known AS k JOIN hang_waiting AS n ON n.pid = k.holder
    AND least(k.to_ns, n.to_ns) - greatest(k.from_ns, n.from_ns) >= 100_000_000
WHERE k.known NOT IN ('frozen', 'nothing') GROUP BY k.id;
CREATE TEMP TABLE hang_long AS
SELECT k.*, n.next, p.site, p.functions,
    coalesce(p.freeze, false) AS freeze, coalesce(p.io, false) AS io,
    coalesce(p.child, false) AS child, coalesce(p.locks, false) OR k.lock > 0 AS locks
FROM hang_known AS k LEFT JOIN hang_next AS n USING (id) LEFT JOIN hang_where AS p USING (place);

CREATE TEMP TABLE hang_walk AS
WITH RECURSIVE walk AS (
    SELECT id, id AS here, next, [id] AS path, from_ns, to_ns FROM hang_long
    UNION ALL
    SELECT w.id, l.id, l.next, list_append(path, l.id), greatest(w.from_ns, l.from_ns),
        least(w.to_ns, l.to_ns)
    FROM walk AS w JOIN hang_long AS l ON l.id = w.next AND NOT list_contains(path, l.id)
    WHERE len(path) < 16
)
SELECT *, coalesce(list_contains(path, next), false) AS cycle FROM walk
QUALIFY row_number() OVER (PARTITION BY id ORDER BY len(path) DESC) = 1;

-- Each circle once, by its smallest sleep. All of its threads sleep at the same time.
CREATE TEMP TABLE hang_cycle AS
SELECT id, path, from_ns, to_ns FROM hang_walk
WHERE cycle AND next = id AND id = list_min(path) AND to_ns - from_ns >= 100_000_000;
CREATE TEMP MACRO hang_thread(tid, since) AS thread(tid, greatest(since, 0));
CREATE TEMP TABLE hang_chain AS
SELECT w.id, len(w.path) - 1 AS depth, c.id AS cycle,
    CASE WHEN c.id IS NOT NULL THEN 'dead-lock'
        WHEN e.known = 'frozen' OR e.lock = 0 AND e.freeze THEN 'frozen file system'
        WHEN e.state & 32768 > 0 THEN 'freezer'
        WHEN e.known <> 'nothing' THEN 'holder'
        WHEN e.locks THEN 'lock'
        WHEN e.child THEN 'child' WHEN e.io THEN 'device' ELSE 'other' END AS cause,
    CASE WHEN c.id IS NOT NULL THEN format('dead-lock of {}', hang_thread(l.pid, l.from_ns))
        WHEN e.known = 'frozen' THEN format('file system {}, frozen by {}', disk(e.device),
            hang_thread(e.by_pid, e.frozen_ns))
        WHEN e.lock = 0 AND e.freeze THEN 'a file system, frozen before the log'
        WHEN e.state & 32768 > 0 THEN 'the freezer'
        WHEN e.known <> 'nothing' THEN format('{}, holder of a lock',
            hang_thread(e.holder, e.from_ns))
        WHEN e.lock > 0 THEN format('lock {}, holder unknown', data(e.lock, NULL, 0))
        WHEN e.locks THEN format('a lock, in {}', coalesce(e.site, '?'))
        WHEN e.child THEN 'a child (vfork)'
        WHEN e.io THEN format('a device, in {}', coalesce(e.site, '?'))
        ELSE format('{}', coalesce(e.site, '?')) END AS root,
    CASE WHEN c.id IS NULL THEN e.pid END AS root_pid
FROM hang_walk AS w JOIN hang_long AS e ON e.id = w.here
LEFT JOIN hang_cycle AS c ON list_contains(w.path, c.id)
LEFT JOIN hang_long AS l ON l.id = c.id;

CREATE TEMP MACRO hang_lock(lock, kind) AS
CASE WHEN lock > 0 THEN format('{} ({})', data(lock, NULL, 0),
    CASE WHEN kind & 32 > 0 THEN 'mutex' WHEN kind & 16 > 0 THEN 'percpu rwsem'
        WHEN kind & 8 > 0 THEN 'rt-mutex' WHEN kind & 64 > 0 THEN 'semaphore'
        WHEN kind & 4 > 0 THEN 'rwsem, to write' ELSE 'rwsem, to read' END) END;
CREATE TEMP MACRO hang_call(call) AS CASE WHEN call >= 0 THEN syscall(call) END;
CREATE TEMP MACRO hang_kind(state) AS CASE WHEN state & 32768 > 0 THEN 'frozen'
    WHEN state & 256 > 0 THEN 'killable' ELSE 'D' END;
CREATE TEMP VIEW hang_warning AS
SELECT format('Left out, because their ends may be lost: {:,} {}.', sleeps,
    CASE sleeps WHEN 1 THEN 'sleep' ELSE 'sleeps' END)
FROM hang_left_out WHERE sleeps > 0;
-- Who sleeps as long is stuck: a parameter of the recording.
CREATE TEMP TABLE hang_limit AS
SELECT coalesce(max(hang_ns(TRY_CAST(value AS HUGEINT))), 10_000_000_000) AS ns
FROM klogger.parameter WHERE schema = 'hang' AND name = 'stuck';
