-- SPDX-License-Identifier: GPL-2.0-only
-- title: Opened for nothing
-- question: Which files does a program open, and then neither read, map, list nor write?
-- order: 30
-- events: NAMED, LOOK, READ, WRITE, LISTED, CLOSED, COPIED, RING, DESCRIPTORS
-- include: _files
-- picture: bars x=opens y=folder
-- column program: program
-- column folder: directory of these files
-- column files [count]: different files
-- column opens [count, bar]: times that one was opened, and closed without any use
-- column of_opens [share]: of all that the program has opened in this directory
-- column example: one of them
-- note: Files that are still open at the end of the log are not counted. A use by a child that has
--     inherited the descriptor, or through a copy, is a use.
-- empty: every file that was opened and closed was used

CREATE TEMP VIEW files_closed AS
SELECT pid, time, id, path, regexp_replace(path, '/[^/]*$', '') AS folder,
    reads + maps + lists + writes = 0 AND inode <> 0 AS unused, broken, to_ns
FROM files_session WHERE path IS NOT NULL;
CREATE TEMP TABLE files_unused AS
SELECT program, folder, count(DISTINCT path) FILTER (unused) AS files,
    count(*) FILTER (unused) AS opens, count(*) FILTER (unused) / count(*) AS of_opens,
    min(path) FILTER (unused) AS example
FROM klogger.with_program('files_closed') WHERE NOT broken AND to_ns IS NOT NULL
GROUP BY ALL HAVING opens > 0;

-- table
FROM files_unused ORDER BY opens DESC, program, folder;

-- picture
SELECT format('{}: {}', program, folder) AS folder, opens FROM files_unused
ORDER BY opens DESC, folder LIMIT 20;

-- finding
SELECT format('{:,} of {:,} files that were opened were closed without any use, most by {} in {}.',
    files_big(sum(opens)), (SELECT count(*) FROM files_session), arg_max(program, opens),
    arg_max(folder, opens)),
    files_lost(sum(opens)) AS weight
FROM files_unused HAVING count(*) > 0;

-- warning
SELECT format('Left out, because events are missing while they were open: {:,} {}.', count(*),
    CASE count(*) WHEN 1 THEN 'file' ELSE 'files' END)
FROM files_session WHERE broken HAVING count(*) > 0;
