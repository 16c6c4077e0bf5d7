-- SPDX-License-Identifier: GPL-2.0-only
-- title: Directories
-- question: Which directories does a program list, and how much of them does it open then?
-- order: 60
-- events: NAMED, LOOK, READ, WRITE, LISTED, CLOSED, COPIED, RING, DESCRIPTORS
-- include: _files
-- picture: bars x=entries y=folder
-- column program: program
-- column pid: process
-- column folder: directory
-- column lists [count]: times that it was listed
-- column entries [count, bar]: entries that it had the last time
-- column opened [count]: different files in it that the process opened or looked at afterwards
-- column of_entries [share]: of the entries
-- empty: no directory was listed while the log was recorded

CREATE TEMP TABLE files_entered AS
SELECT tgid, regexp_replace(rtrim(path, '/'), '/[^/]*$', '') AS folder, path, time
FROM files_look WHERE NOT by_fd AND path IS NOT NULL AND result >= 0;
CREATE TEMP VIEW files_listing AS
SELECT l.tgid AS pid, min(l.time) AS time, rtrim(l.path, '/') AS folder, count(*) AS lists,
    arg_max(l.entries, l.time) AS entries
FROM files_session AS l WHERE lists > 0 AND path IS NOT NULL
GROUP BY l.tgid, rtrim(l.path, '/');
CREATE TEMP TABLE files_listed AS
SELECT l.program, l.pid, l.folder, l.lists, l.entries,
    count(DISTINCT e.path) AS opened
FROM klogger.with_program('files_listing') AS l LEFT JOIN files_entered AS e
    ON e.tgid = l.pid AND e.folder = l.folder AND e.time >= l.time
GROUP BY ALL;

-- table
SELECT *, opened / greatest(entries, 1) AS of_entries FROM files_listed
ORDER BY entries DESC, folder, pid;

-- picture
SELECT folder, max(entries) AS entries FROM files_listed GROUP BY folder
ORDER BY entries DESC, folder LIMIT 20;

-- finding
SELECT format('{:,} directories were listed, the largest is {} with {:,} entries, of which {} then '
    'opened or looked at {:,}.', count(*), arg_max(folder, entries), max(entries),
    arg_max(program, entries), arg_max(opened, entries))
FROM files_listed HAVING count(*) > 0;
