-- SPDX-License-Identifier: GPL-2.0-only
-- title: Open at the start
-- question: Which files had the processes open when the recording began?
-- order: 90
-- events: HELD
-- column program: program
-- column pid: process
-- column fd: descriptor
-- column device: device of the file system
-- column inode: number of the file
-- column path: within its file system
-- note: Without those that the recorder had left to its command, which exec closes.
-- empty: no process in scope had a file open

CREATE TEMP VIEW files_held AS
SELECT tgid AS pid, time, fd, device, inode, path FROM HELD AS h
WHERE NOT (cloexec AND EXISTS (SELECT * FROM PROCESS_EXEC AS e WHERE e.pid = h.tgid));

-- table
SELECT program, pid, fd, disk(device) AS device, inode, path
FROM klogger.with_program('files_held') ORDER BY pid, fd;

-- finding
SELECT format('{:,} files were open in {:,} {}.', count(*), count(DISTINCT pid),
    CASE count(DISTINCT pid) WHEN 1 THEN 'process' ELSE 'processes' END)
FROM files_held HAVING count(*) > 0;
