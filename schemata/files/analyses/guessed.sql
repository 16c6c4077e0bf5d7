-- SPDX-License-Identifier: GPL-2.0-only
-- title: Names that are not there
-- question: Which names does a program try that do not exist, and where?
-- order: 50
-- events: NAMED, LOOK, COPIED, RING, DESCRIPTORS
-- include: _files
-- picture: bars x=absent y=folder
-- combine: sum
-- column program: program
-- column folder: directory in which they were looked for
-- column names [count, apart]: different names
-- column absent [count, bar]: calls that failed with ENOENT
-- column of_all [share, apart]: of the program's calls with a path in this directory
-- column example [most]: one of them
-- empty: every name that was tried exists

CREATE TEMP VIEW files_tried AS
SELECT pid, time, path, regexp_replace(path, '/[^/]*$', '') AS folder, result = -2 AS absent
FROM files_look WHERE NOT by_fd AND path IS NOT NULL;
CREATE TEMP TABLE files_absent AS
SELECT program, folder, count(DISTINCT path) FILTER (absent) AS names,
    count(*) FILTER (absent) AS absent, count(*) FILTER (absent) / count(*) AS of_all,
    min(path) FILTER (absent) AS example
FROM klogger.with_program('files_tried') GROUP BY ALL
HAVING count(*) FILTER (absent) > 0;

-- table
FROM files_absent ORDER BY absent DESC, program, folder;

-- picture
SELECT format('{}: {}', program, folder) AS folder, absent FROM files_absent
ORDER BY absent DESC, folder LIMIT 20;

-- finding
SELECT format('{:,} of {:,} calls with a path found no such name, most of {} in {}.',
    files_big(sum(absent)), (SELECT count(*) FROM files_tried), arg_max(program, absent),
    arg_max(folder, absent)),
    files_lost(sum(absent)) AS weight
FROM files_absent HAVING count(*) > 0;
