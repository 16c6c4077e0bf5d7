-- SPDX-License-Identifier: GPL-2.0-only
-- title: Loader
-- question: What does the loader do from exec to main, for which shared object?
-- order: 70
-- events: NAMED, LOOK, READ, WRITE, LISTED, CLOSED, COPIED, RING, DESCRIPTORS, PROTECTED
-- include: _files
-- picture: timeline x=from_ns x2=to_ns row=step colour=what
-- column program: program
-- column pid: process
-- column object: shared object, where it was found, or the first place where it was looked for; at
--     last the relocation, from the last mapping to the last protection of memory
-- column opens [count]: times that it was opened
-- column failed [count]: calls for it that failed, also in other directories
-- column maps [count]: mappings of it
-- column bytes [bytes]: length of the longest mapping, which is all of it
-- column protects [count]: calls of mprotect, until the next object is opened
-- column ns [ns, bar]: from the first call for it to the last
-- column of_start [share]: of the time from exec to the last call of the loader
-- column from_ns [ns]: time since exec
-- column to_ns [ns]: its last call for this object
-- column step: step; in the order in which they begin, with the name of the object
-- column what: what the time is of
-- note: The loader's last call is its last mapping or its last mprotect(PROT_READ) before a file
--     is opened that is no shared object, before a write or a listing, and before an object is
--     opened after such an mprotect. So main begins between this call and the next one.
-- note: The picture is of the start that took the longest.
-- empty: no program was started, or none has shared objects

CREATE TEMP TABLE loader_start AS
SELECT row_number() OVER (ORDER BY time, pid) AS start, pid, time AS exec FROM PROCESS_EXEC;
-- Calls of the threads that called exec, and the object that each opens or looks for.
CREATE TEMP TABLE loader_call AS
SELECT s.start, s.exec, c.*
FROM (
    SELECT pid, time, took, CASE WHEN opens AND result >= 0 THEN 'open' ELSE 'look' END AS kind,
        path, result < 0 AS fails, 0::BIGINT AS bytes,
        CASE WHEN regexp_matches(path, '\.so(\.[^/]*)?$|\.path$')
            THEN regexp_replace(path, '^.*/', '') END AS object
    FROM files_look WHERE call NOT IN ('execve', 'execveat')
    UNION ALL
    SELECT pid, time, took, CASE WHEN call = 'mmap' THEN 'map' ELSE kind END, NULL, result < 0,
        result, NULL
    FROM files_use
    UNION ALL SELECT tid, time, took, 'close', NULL, false, 0, NULL FROM CLOSED
    UNION ALL
    SELECT tid, time, took, CASE WHEN protection = 1 THEN 'seal' ELSE 'protect' END, NULL,
        result < 0, 0, NULL
    FROM PROTECTED
) AS c ASOF JOIN loader_start AS s ON c.pid = s.pid AND c.time >= s.exec;
-- The first call that is not the loader's.
CREATE TEMP TABLE loader_main AS
SELECT start, min(time) AS main
FROM loader_call AS c LEFT JOIN (
    SELECT start, min(time) AS sealed FROM loader_call WHERE kind = 'seal' GROUP BY start
) AS s USING (start)
WHERE kind IN ('write', 'list') OR kind = 'open' AND (object IS NULL OR time > sealed)
GROUP BY start;
-- What follows a call for an object is done for it; what follows its last mapping is relocation.
CREATE TEMP TABLE loader_step AS
SELECT *, object_of IS NOT NULL AND kind IN ('seal', 'protect') AND time > mapped AS relocates
FROM (
    SELECT c.*, last_value(object IGNORE NULLS) OVER calls AS object_of,
        max(CASE WHEN kind = 'map' THEN time END) OVER start AS mapped,
        max(CASE WHEN kind IN ('map', 'seal') THEN time END) OVER start AS done
    FROM loader_call AS c LEFT JOIN loader_main AS m USING (start)
    WHERE m.main IS NULL OR c.time < m.main
    WINDOW start AS (PARTITION BY c.start),
        calls AS (PARTITION BY c.start ORDER BY c.time ROWS UNBOUNDED PRECEDING)
) WHERE time <= done;
CREATE TEMP TABLE loader_part AS
SELECT start, any_value(pid) AS pid, any_value(exec) AS exec, relocates,
    CASE WHEN relocates THEN '(relocation)'
        ELSE coalesce(min(path) FILTER (kind = 'open'), arg_min(path, time)) END AS object,
    count(*) FILTER (kind = 'open') AS opens, count(*) FILTER (fails) AS failed,
    count(*) FILTER (kind = 'map' AND NOT fails) AS maps,
    coalesce(max(bytes) FILTER (kind = 'map' AND NOT fails), 0) AS bytes,
    count(*) FILTER (kind IN ('seal', 'protect')) AS protects,
    CASE WHEN relocates THEN any_value(mapped) ELSE min(time - took) END AS from_time,
    max(time) FILTER (kind <> 'close') AS to_time
FROM loader_step WHERE object_of IS NOT NULL
GROUP BY start, relocates, CASE WHEN NOT relocates THEN object_of END;
CREATE TEMP VIEW loader_of AS
SELECT pid, max(to_time) OVER (PARTITION BY start) AS time, start, relocates, object, opens, failed,
    maps, bytes, protects, greatest(from_time - exec, 0)::BIGINT AS from_ns,
    greatest(to_time - exec, 0)::BIGINT AS to_ns,
    greatest(max(to_time) OVER (PARTITION BY start) - exec, 0)::BIGINT AS whole
FROM loader_part;
CREATE TEMP TABLE loader AS
SELECT *, greatest(to_ns - from_ns, 0) AS ns FROM klogger.with_program('loader_of');

-- table
SELECT program, pid, object, opens, failed, maps, bytes, protects, ns,
    ns / greatest(whole, 1) AS of_start, from_ns
FROM loader ORDER BY whole DESC, start, from_ns, object;

-- picture
SELECT from_ns, to_ns, format('{:02} {}', row_number() OVER (ORDER BY from_ns, object),
        regexp_replace(object, '^.*/', '')) AS step,
    CASE WHEN relocates THEN 'relocation' WHEN maps > 0 THEN 'mapped' ELSE 'not there' END AS what
FROM loader WHERE start = (SELECT arg_max(start, whole) FROM loader)
ORDER BY from_ns LIMIT 60;

-- finding
SELECT format('{:,} {}; the longest, of {}, took {} from exec to the last call of the loader, with '
    '{:,} objects mapped and {:,} failed calls.', count(*),
    CASE count(*) WHEN 1 THEN 'program was started' ELSE 'programs were started' END,
    arg_max(program, whole), duration(max(whole)), arg_max(mapped, whole), arg_max(failed, whole)),
    sum(whole) / (SELECT greatest(to_ns - from_ns, 1) FROM klogger.recording) AS weight
FROM (
    SELECT start, any_value(program) AS program, any_value(whole) AS whole,
        count(*) FILTER (maps > 0) AS mapped, files_big(sum(failed)) AS failed
    FROM loader GROUP BY start
) HAVING count(*) > 0;
