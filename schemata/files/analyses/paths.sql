-- SPDX-License-Identifier: GPL-2.0-only
-- title: Files
-- question: Which files does each program open, look at, read and write?
-- order: 20
-- events: NAMED, LOOK, READ, WRITE, LISTED, CLOSED, COPIED, RING, DESCRIPTORS
-- include: _files
-- picture: bars x=took y=path
-- combine: sum
-- column program: program
-- column path: as the program named it; of a relative path with the directory where it begins
-- column opens [count]: times that it was opened
-- column looks [count]: other calls with this path, such as stat
-- column errors [count]: of both
-- column read [bytes]: read through these descriptors
-- column written [bytes]: written through them
-- column took [ns, bar]: time in calls with this path, and in reads and writes
-- note: What a program reads and writes through a descriptor that it has copied or inherited
--     belongs to the path as well; not if another process has sent it the descriptor.
-- empty: no thread in scope named a file while the log was recorded

CREATE TEMP TABLE files_touched AS
SELECT pid, time, path, opens::INT AS opens, (NOT opens)::INT AS looks,
    (result BETWEEN -4095 AND -1)::INT AS errors, 0 AS read, 0 AS written, took
FROM files_look WHERE NOT by_fd AND path IS NOT NULL
UNION ALL
SELECT d.tgid, d.time, o.path, 0, 0, 0,
    CASE WHEN d.kind = 'read' AND d.call <> 'mmap' THEN greatest(d.result, 0) ELSE 0 END,
    CASE WHEN d.kind = 'write' THEN greatest(d.result, 0) ELSE 0 END, d.took
FROM files_did AS d JOIN files_open AS o USING (id) WHERE o.path IS NOT NULL;
CREATE TEMP TABLE files_path AS
SELECT program, path, files_big(sum(opens)) AS opens, files_big(sum(looks)) AS looks,
    files_big(sum(errors)) AS errors, files_big(sum(read)) AS read,
    files_big(sum(written)) AS written,
    files_big(sum(took)) AS took
FROM klogger.with_program('files_touched') GROUP BY ALL;

-- table
FROM files_path ORDER BY took DESC, path, program;

-- picture
SELECT path, files_big(sum(took)) AS took FROM files_path GROUP BY path
ORDER BY took DESC, path LIMIT 20;

-- finding
SELECT format('{:,} paths were named; most time went to {} ({}).', count(*), arg_max(path, took),
    duration(max(took)))
FROM (SELECT path, files_big(sum(took)) AS took FROM files_path GROUP BY path) HAVING count(*) > 0;
