-- SPDX-License-Identifier: GPL-2.0-only
-- What all analyses of `futex` share: each wait from its call to its return.

-- Where the program waits or wakes: the first function that is not one of the C library's. `locks`:
-- whether it is glibc that waits for a mutex, also in a static program, by a name of its own.
CREATE TEMP TABLE futex_site AS
SELECT id, coalesce(list_filter(list_zip(frames, files), lambda f: f[1] IS NOT NULL
        AND NOT starts_with(f[1], '__') AND NOT starts_with(f[1], '?')
        AND NOT regexp_matches(f[1], '^(pthread_|lll_|futex_wa|syscall$)')
        AND NOT regexp_matches(f[1], '^(lib(c|pthread)|ld-musl-[a-z0-9_]*)\.so')
        AND NOT coalesce(regexp_matches(f[2], '/(lib(c|pthread)[.-]|ld-musl-)'), false))[1][1],
    frames[1]) AS site,
    coalesce(regexp_matches(list_filter(frames, lambda f: NOT starts_with(f, 'futex_wait'))[1],
        '^_*(GI_+)?(lll_[a-z]*lock_wait|pthread_mutex_lock_full)\b'), false) AS locks
FROM klogger.stack WHERE kind = 'user';

CREATE TEMP VIEW futex_begin AS
SELECT tid AS key, lock AS who, time,
    {'holder': holder, 'guess': guess, 'stack': user_stack, 'op': op, 'tgid': tgid, 'timed': timed,
        'prio': prio} AS begun
FROM WAIT;
CREATE TEMP VIEW futex_end AS
SELECT tid AS key, lock AS who, time,
    {'took': took, 'asleep': asleep, 'result': result, 'waker': waker, 'handoff': handoff} AS ended
FROM WAITED;
CREATE TEMP TABLE futex_pair AS
SELECT key AS pid, NULL AS place, who AS lock, begun, ended, from_ns, to_ns, outside
FROM klogger.pairs('futex_begin', 'futex_end') WHERE from_ns IS NOT NULL;
CREATE TEMP TABLE futex_wait AS
SELECT pid, from_ns AS time, begun.tgid AS tgid, lock,
    CASE WHEN begun.holder > 0 OR NOT coalesce(locks, false) THEN begun.holder ELSE begun.guess END
        AS holder,
    begun.guess AS guess, begun.op AS op, begun.stack AS stack, begun.timed AS timed,
    begun.prio AS prio, from_ns, to_ns, ended.result AS result, ended.waker AS waker,
    ended.handoff AS handoff,
    least(coalesce(ended.asleep, 0), 9223372036854775807)::BIGINT AS asleep,
    to_ns - from_ns AS ns, broken
FROM klogger.broken('futex_pair', ['WAIT', 'WAITED'])
LEFT JOIN futex_site AS s ON s.id = begun.stack AND begun.stack > 0;
DROP TABLE futex_pair;

-- By its name at that time, with the process; or by process and address.
-- DuckDB puts arguments into the text of nested macros: their names must not be columns there.
CREATE TEMP MACRO futex_name(futex_process, futex_lock, futex_time) AS
    CASE WHEN data(futex_lock, futex_process, futex_time) = hex(futex_lock)
    THEN format('{}:{}', futex_process, hex(futex_lock))
    ELSE format('{} ({})', data(futex_lock, futex_process, futex_time),
        thread(futex_process, futex_time)) END;
-- A priority of the kernel, as sched_setscheduler() and nice have it.
CREATE TEMP MACRO futex_prio(prio) AS CASE WHEN prio < 0 THEN 'deadline'
    WHEN prio < 100 THEN format('real time {}', 99 - prio) ELSE format('nice {}', prio - 120) END;
