-- SPDX-License-Identifier: GPL-2.0-only
-- What all analyses of `files` share: looks with their paths, and open files with their use.

-- A sum, also of a damaged log; not by least(), which passes over NULL.
CREATE TEMP MACRO files_big(x) AS
    CASE WHEN x > 9223372036854775807 THEN 9223372036854775807 ELSE x END::BIGINT;

-- NAMED is logged again when another key has taken its place in the table of the schema.
CREATE TEMP TABLE files_named AS
SELECT file, any_value(inode) AS inode, any_value(size) AS size, any_value(mtime) AS mtime,
    any_value(device) AS device, any_value(path) AS path, any_value(base) AS base
FROM NAMED GROUP BY file;

CREATE TEMP TABLE files_call AS
SELECT call, regexp_replace(place(call), '^.* ', '') AS name
FROM (SELECT call FROM LOOK UNION SELECT call FROM READ UNION SELECT call FROM WRITE
    UNION SELECT call FROM LISTED UNION SELECT call FROM CLOSED
    UNION SELECT call FROM PROTECTED);

-- A relative path begins at `base`, which is known within its file system only.
CREATE TEMP MACRO files_whole(path, base) AS
    CASE WHEN path = '' THEN NULL WHEN starts_with(path, '/') OR base IN ('', '...') THEN path
        ELSE rtrim(base, '/') || '/' || regexp_replace(path, '^(\./+)+', '') END;

CREATE TEMP TABLE files_look AS
SELECT l.time, l.tid AS pid, coalesce(t.tgid, l.tid) AS tgid, c.name AS call, l.file,
    files_whole(n.path, n.base) AS path, coalesce(n.inode, 0) AS inode, n.device, n.size, n.mtime,
    l.result, l.took, l.mode,
    c.name IN ('open', 'openat', 'openat2', 'creat') AS opens,
    n.path = '' OR c.name IN ('fstat', 'fchdir') AS by_fd
FROM LOOK AS l JOIN files_call AS c USING (call) LEFT JOIN files_named AS n USING (file)
LEFT JOIN klogger.thread AS t ON t.pid = l.tid;

-- What was done through a descriptor. Of calls that read one file and write another, the reading.
CREATE TEMP TABLE files_use AS
SELECT u.time, u.tid AS pid, coalesce(t.tgid, u.tid) AS tgid, c.name AS call, fd, inode, device,
    result, took, kind, text, entries
FROM (
    SELECT time, tid, call, fd, inode, device, result, took, 'read' AS kind, 0::UBIGINT AS text,
        0 AS entries FROM READ
    UNION ALL SELECT time, tid, call, fd, inode, device, result, took, 'write', text, 0 FROM WRITE
    UNION ALL SELECT time, tid, call, fd, inode, device, result, took, 'list', 0, entries
    FROM LISTED
) AS u JOIN files_call AS c USING (call) LEFT JOIN klogger.thread AS t ON t.pid = u.tid;

-- Each open file, until it is closed, its number is given to another one, or its process ends.
CREATE TEMP TABLE files_end AS
SELECT coalesce(t.tgid, c.tid) AS tgid, fd, time
FROM CLOSED AS c LEFT JOIN klogger.thread AS t ON t.pid = c.tid WHERE result = 0;
CREATE TEMP TABLE files_opened AS
WITH opened AS (
    SELECT row_number() OVER (ORDER BY time, pid) AS id, time, pid, tgid, result AS fd, path, inode,
        device, size, mtime, took, mode
    FROM files_look WHERE opens AND result >= 0
)
SELECT o.*, NULL AS place, o.time AS from_ns, e.time AS to_ns
FROM opened AS o ASOF LEFT JOIN files_end AS e
    ON o.tgid = e.tgid AND o.fd = e.fd AND o.time < e.time;

-- What was done to each. A descriptor that was copied, or inherited, is not followed.
CREATE TEMP TABLE files_did AS
SELECT o.id, u.time, u.kind, u.call, u.result, u.text, u.entries, u.took
FROM files_use AS u ASOF JOIN files_opened AS o
    ON u.tgid = o.tgid AND u.fd = o.fd AND u.inode = o.inode AND u.time >= o.time;
CREATE TEMP TABLE files_session AS
SELECT o.*, coalesce(d.reads, 0) AS reads, coalesce(d.bytes, 0) AS bytes,
    coalesce(d.maps, 0) AS maps, coalesce(d.lists, 0) AS lists, coalesce(d.entries, 0) AS entries,
    coalesce(d.writes, 0) AS writes, coalesce(d.written, 0) AS written, d.text
FROM klogger.broken('files_opened', ['LOOK', 'NAMED', 'READ', 'WRITE', 'LISTED', 'CLOSED']) AS o
LEFT JOIN (
    SELECT id, count(*) FILTER (kind = 'read' AND call <> 'mmap') AS reads,
        files_big(sum(greatest(result, 0)) FILTER (kind = 'read' AND call <> 'mmap')) AS bytes,
        count(*) FILTER (call = 'mmap' AND result >= 0) AS maps,
        count(*) FILTER (kind = 'list') AS lists, files_big(sum(entries)) AS entries,
        count(*) FILTER (kind = 'write') AS writes,
        files_big(sum(greatest(result, 0)) FILTER (kind = 'write')) AS written,
        list(text ORDER BY time) FILTER (kind = 'write') AS text
    FROM files_did GROUP BY id
) AS d USING (id);
