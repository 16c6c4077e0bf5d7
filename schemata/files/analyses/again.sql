-- SPDX-License-Identifier: GPL-2.0-only
-- title: Read again
-- question: Which files does a process read several times although they have not changed?
-- order: 40
-- events: NAMED, LOOK, READ, WRITE, LISTED, CLOSED, COPIED, RING, DESCRIPTORS
-- include: _files
-- picture: bars x=again y=path
-- column program: program
-- column pid: process
-- column path: file
-- column again [count, bar]: times that it was opened and read after the first time
-- column bytes [bytes]: that were read again
-- note: A file has not changed if its inode, size and time of modification are the same.
-- empty: no process read a file a second time that had not changed

CREATE TEMP VIEW files_again_of AS
SELECT tgid AS pid, min(time) AS time, any_value(path) AS path, count(*) - 1 AS again,
    files_big(sum(bytes)) - arg_min(bytes, time) AS bytes
FROM files_session WHERE bytes > 0 AND inode <> 0 AND writes = 0 AND NOT broken
GROUP BY tgid, device, inode, size, mtime HAVING count(*) > 1;
CREATE TEMP TABLE files_again AS FROM klogger.with_program('files_again_of');

-- table
SELECT program, pid, path, again, bytes FROM files_again ORDER BY again DESC, path, pid;

-- picture
SELECT path, files_big(sum(again)) AS again FROM files_again GROUP BY path
ORDER BY again DESC, path LIMIT 20;

-- finding
SELECT format('{:,} times a process read a file again that had not changed, most {} of {} ({:,}).',
    files_big(sum(again)), arg_max(path, again), arg_max(program, again), max(again)),
    files_lost(sum(again)) AS weight
FROM files_again HAVING count(*) > 0;

-- warning
SELECT format('Left out, because events are missing while they were open: {:,} {}.', count(*),
    CASE count(*) WHEN 1 THEN 'file' ELSE 'files' END)
FROM files_session WHERE broken HAVING count(*) > 0;
