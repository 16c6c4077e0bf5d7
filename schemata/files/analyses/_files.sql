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
    UNION SELECT call FROM COPIED);

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
LEFT JOIN klogger.thread AS t ON t.pid = l.tid
UNION ALL
SELECT time, tid, coalesce(t.tgid, r.tid), 'io_uring:' || ring_op(op), 0, nullif(path, ''), inode,
    device, NULL, NULL, result, took, 0, true, false
FROM RING AS r LEFT JOIN klogger.thread AS t ON t.pid = r.tid WHERE op IN (18, 28);

-- The weight of a finding: the part of the recorded time that so many calls took, if they took as
-- long as those with a path do on average.
CREATE TEMP MACRO files_lost(calls) AS least(
    calls * coalesce((SELECT avg(took) FROM files_look), 0)
        / (SELECT greatest(to_ns - from_ns, 1) FROM klogger.recording), 1);

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
) AS u JOIN files_call AS c USING (call) LEFT JOIN klogger.thread AS t ON t.pid = u.tid
UNION ALL
SELECT time, tid, coalesce(t.tgid, r.tid), 'io_uring:' || ring_op(op), fd, inode, device, result,
    took, CASE WHEN op IN (1, 4, 22) THEN 'read' ELSE 'write' END, 0, 0
FROM RING AS r LEFT JOIN klogger.thread AS t ON t.pid = r.tid WHERE op IN (1, 2, 4, 5, 22, 23);

-- Tables of descriptors. A key is the id of a table, or of a process whose DESCRIPTORS are not in
-- the log its number: then its threads share one table, and a new process has a copy. A key may be
-- used again by a later table, so each table has a number, and a time from which it has the key.
CREATE TEMP TABLE files_key AS
SELECT tid, time, id AS key, nullif(copied, 0) AS parent FROM DESCRIPTORS
UNION ALL
SELECT f.pid, f.time, f.tgid, CASE WHEN f.pid = f.tgid THEN coalesce(d.id, t.tgid, f.parent) END
FROM PROCESS_FORK AS f ASOF LEFT JOIN DESCRIPTORS AS d ON d.tid = f.parent AND f.time >= d.time
LEFT JOIN klogger.thread AS t ON t.pid = f.parent
WHERE f.pid NOT IN (SELECT tid FROM DESCRIPTORS)
UNION ALL
SELECT pid, -1, any_value(tgid), NULL FROM klogger.thread
WHERE pid NOT IN (SELECT tid FROM DESCRIPTORS) GROUP BY pid;
CREATE TEMP TABLE files_table AS
WITH born AS (
    SELECT key, time AS born, parent FROM files_key WHERE parent IS NOT NULL
    UNION SELECT key, -1, NULL FROM files_key
    UNION SELECT parent, -1, NULL FROM files_key WHERE parent IS NOT NULL
), numbered AS (SELECT row_number() OVER (ORDER BY born, key) AS tab, * FROM born)
SELECT n.tab, n.key, n.born, p.tab AS parent
FROM numbered AS n ASOF LEFT JOIN numbered AS p ON p.key = n.parent AND n.born > p.born;
-- Which table a thread has, from when on, and until when.
CREATE TEMP TABLE files_has AS
WITH had AS (
    SELECT k.tid, k.time, t.tab
    FROM files_key AS k ASOF JOIN files_table AS t ON t.key = k.key AND k.time >= t.born
)
SELECT h.tid, h.time, h.tab,
    least(x.time, lead(h.time) OVER (PARTITION BY h.tid ORDER BY h.time)) AS until
FROM had AS h ASOF LEFT JOIN PROCESS_EXIT AS x ON x.pid = h.tid AND h.time < x.time;

-- What descriptors were given, numbered: first the open files, by their ids, then the copies.
CREATE TEMP TABLE files_open AS
SELECT row_number() OVER (ORDER BY o.time, pid) AS id, o.time, pid, tgid,
    coalesce(tab, -(pid & 4294967295)) AS tab, result AS fd, path, inode, device, size, mtime,
    took, mode
FROM files_look AS o ASOF LEFT JOIN files_has AS h ON h.tid = o.pid AND o.time >= h.time
WHERE opens AND result >= 0;
SET VARIABLE files_opens = (SELECT count(*) FROM files_open);
CREATE TEMP TABLE files_given AS
SELECT id AS node, tab, fd, time, NULL::INT AS source FROM files_open
UNION ALL
SELECT getvariable('files_opens') + row_number() OVER (ORDER BY c.time, c.tid),
    coalesce(tab, -(c.tid & 4294967295)), c.result, c.time, c.fd
FROM COPIED AS c ASOF LEFT JOIN files_has AS h ON h.tid = c.tid AND c.time >= h.time
WHERE c.result >= 0 AND c.result <> c.fd;

-- What was done through a descriptor (and copies of it, of no kind), with what it was given before.
-- Without that, its table has it from the one that it was copied from.
CREATE TEMP TABLE files_through AS
SELECT u.*, g.node
FROM (
    SELECT NULL AS copy, coalesce(tab, -(pid & 4294967295)) AS tab, tgid, fd, u.time, kind, call,
        result, text, entries, took, inode, device
    FROM files_use AS u ASOF LEFT JOIN files_has AS h ON h.tid = u.pid AND u.time >= h.time
    UNION ALL
    SELECT node, tab, NULL, source, time, NULL, NULL, 0, 0, 0, 0, 0, 0 FROM files_given
    WHERE source IS NOT NULL
) AS u ASOF LEFT JOIN files_given AS g ON g.tab = u.tab AND g.fd = u.fd AND u.time >= g.time;

-- Inherited descriptors, back to the first table that is known.
CREATE TEMP TABLE files_inherited AS
WITH RECURSIVE inherited AS (
    SELECT tab, fd FROM files_through WHERE node IS NULL
    UNION
    SELECT t.parent, i.fd
    FROM inherited AS i JOIN files_table AS t USING (tab) WHERE t.parent IS NOT NULL
)
SELECT -row_number() OVER (ORDER BY born, tab, fd) AS node, tab, born, fd, parent
FROM inherited JOIN files_table USING (tab) WHERE parent IS NOT NULL;
-- From which descriptor each copy and each inherited one is, and so from which open file.
CREATE TEMP TABLE files_from AS
SELECT t.copy AS node, coalesce(t.node, i.node) AS source
FROM files_through AS t LEFT JOIN files_inherited AS i USING (tab, fd) WHERE copy IS NOT NULL
UNION ALL
SELECT i.node, coalesce(g.node, p.node)
FROM files_inherited AS i ASOF LEFT JOIN files_given AS g
    ON g.tab = i.parent AND g.fd = i.fd AND i.born >= g.time
LEFT JOIN files_inherited AS p ON p.tab = i.parent AND p.fd = i.fd;
CREATE TEMP TABLE files_origin AS
WITH RECURSIVE origin AS (
    SELECT node, source AS id FROM files_from
    WHERE source BETWEEN 1 AND getvariable('files_opens')
    UNION
    SELECT f.node, o.id FROM origin AS o JOIN files_from AS f ON f.source = o.node
)
FROM origin;

-- What was done to each open file, by whichever process and descriptor.
CREATE TEMP TABLE files_did AS
SELECT o.id, u.time, u.tgid, u.kind, u.call, u.result, u.text, u.entries, u.took
FROM (
    SELECT t.*, CASE WHEN t.node <= getvariable('files_opens') THEN t.node ELSE o.id END AS id
    FROM files_through AS t LEFT JOIN files_inherited AS i USING (tab, fd)
    LEFT JOIN files_origin AS o ON o.node = coalesce(t.node, i.node)
    WHERE t.copy IS NULL
) AS u JOIN files_open AS o USING (id) WHERE u.inode = o.inode;

-- Each open file, until the descriptor and its copies are closed or given something else. Copies
-- also end with the last thread that has their table.
CREATE TEMP TABLE files_end AS
WITH gone AS (
    SELECT tab, CASE WHEN bool_and(until IS NOT NULL) THEN max(until) END AS time
    FROM files_has GROUP BY tab
), closed AS (
    SELECT coalesce(tab, -(c.tid & 4294967295)) AS tab, fd, c.time
    FROM (
        SELECT tid, fd, time, result FROM CLOSED
        UNION ALL SELECT tid, fd, time, result FROM RING WHERE op = 19
    ) AS c ASOF LEFT JOIN files_has AS h ON h.tid = c.tid AND c.time >= h.time WHERE result = 0
)
SELECT g.node, CASE WHEN g.source IS NULL THEN least(c.time, n.time)
    ELSE least(c.time, n.time, x.time) END AS time
FROM files_given AS g
ASOF LEFT JOIN closed AS c ON c.tab = g.tab AND c.fd = g.fd AND g.time < c.time
ASOF LEFT JOIN files_given AS n ON n.tab = g.tab AND n.fd = g.fd AND g.time < n.time
LEFT JOIN gone AS x ON x.tab = g.tab AND g.time < x.time;
CREATE TEMP TABLE files_opened AS
SELECT o.*, NULL AS place, o.time AS from_ns,
    CASE WHEN e.time IS NOT NULL AND coalesce(c.ended, true) THEN greatest(e.time, c.time) END
        AS to_ns
FROM files_open AS o JOIN files_end AS e ON e.node = o.id
LEFT JOIN (
    SELECT id, max(e.time) AS time, bool_and(e.time IS NOT NULL) AS ended
    FROM files_origin JOIN files_end AS e USING (node) GROUP BY id
) AS c USING (id);
CREATE TEMP TABLE files_session AS
SELECT o.*, coalesce(d.reads, 0) AS reads, coalesce(d.bytes, 0) AS bytes,
    coalesce(d.maps, 0) AS maps, coalesce(d.lists, 0) AS lists, coalesce(d.entries, 0) AS entries,
    coalesce(d.writes, 0) AS writes, coalesce(d.written, 0) AS written, d.text
FROM klogger.broken('files_opened', ['LOOK', 'NAMED', 'READ', 'WRITE', 'LISTED', 'CLOSED', 'COPIED',
    'RING', 'DESCRIPTORS']) AS o
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
