-- SPDX-License-Identifier: GPL-2.0-only
-- The rules. Each is a table of findings: which process, what it is about, how often, and what
-- could be saved. The numbers D1 to D26 are those of "Why Userspace Sucks" (Jones, 2006) in the
-- order of its examples; README.md says which have no rule.

CREATE TEMP MACRO useless_is_pseudo(path) AS
    starts_with(path, '/proc/') OR starts_with(path, '/sys/') OR starts_with(path, '/dev/');
CREATE TEMP MACRO useless_folder(path) AS regexp_replace(path, '/[^/]*$', '');
-- With # in place of the numbers in its last part.
CREATE TEMP MACRO useless_numbered(path) AS useless_folder(path) || '/'
    || regexp_replace(regexp_replace(path, '^.*/', ''), '[0-9]+', '#', 'g');
-- Whether gaps between events are those of a clock: the middle half of them varies by less than a
-- fifth, whatever single ones are.
CREATE TEMP MACRO useless_steady(gaps) AS len(gaps) >= 2 AND
    list_aggregate(gaps, 'quantile_disc', 0.75) - list_aggregate(gaps, 'quantile_disc', 0.25)
        < 0.2 * list_aggregate(gaps, 'quantile_disc', 0.5);

-- Whole sessions only; `data` are the reads and writes that moved something.
CREATE TEMP TABLE useless_session AS
SELECT s.*, coalesce(d.data, 0) AS data, useless_folder(path) AS folder,
    useless_is_pseudo(path) AS pseudo
FROM files_session AS s LEFT JOIN (
    SELECT id, count(*) FILTER (result > 0 AND call <> 'mmap') AS data FROM files_did GROUP BY id
) AS d USING (id)
WHERE NOT broken AND path IS NOT NULL;
-- Looks by path. `changes`: how often the process had changed what this path is.
CREATE TEMP TABLE useless_look AS
SELECT *, coalesce(sum(CASE WHEN result >= 0 AND (call IN ('unlink', 'unlinkat', 'rmdir', 'mkdir',
        'mkdirat', 'rename', 'renameat', 'renameat2', 'link', 'linkat', 'symlink', 'symlinkat',
        'truncate', 'chmod', 'fchmodat', 'mknod', 'mknodat', 'creat')
        OR (opens AND mode & 576 > 0)) THEN 1 ELSE 0 END)
    OVER (PARTITION BY tgid, path ORDER BY time), 0) AS changes
FROM files_look WHERE NOT by_fd AND path IS NOT NULL;
-- Calls that only ask, and opens that fail.
CREATE TEMP TABLE useless_asked AS
SELECT *, time - lag(time) OVER same AS gap FROM useless_look
WHERE call IN ('stat', 'lstat', 'newfstatat', 'statx', 'access', 'faccessat', 'faccessat2',
    'readlink', 'readlinkat') OR (opens AND result < 0)
WINDOW same AS (PARTITION BY tgid, path, call, file, result, changes ORDER BY time);

-- D13: the same question at a steady pace.
CREATE TEMP TABLE useless_d13 AS
SELECT tgid, path, call, count(*) AS times, median(gap) AS period
FROM useless_asked GROUP BY tgid, path, call, file, result, changes
HAVING count(*) >= 3 AND useless_steady(list(gap) FILTER (gap IS NOT NULL))
    AND median(gap) >= 20_000_000;

CREATE TEMP TABLE useless_found AS
-- D1: read several times, though it has not changed.
SELECT 'D1' AS rule, tgid AS pid, max(time) AS time, any_value(path) AS object,
    count(*) - 1 AS times, 3 * (count(*) - 1) AS calls,
    files_big(sum(bytes) - arg_min(bytes, time)) AS bytes, 0 AS wakeups
FROM useless_session WHERE bytes > 0 AND writes = 0 AND inode > 0 AND NOT pseudo
GROUP BY tgid, device, inode, size, mtime HAVING count(*) >= 3
UNION ALL
-- D3: a database made of files: most of a large directory is opened, after it was listed.
SELECT 'D3', l.tgid, max(o.time), rtrim(l.path, '/'), count(DISTINCT o.path),
    3 * count(DISTINCT o.path), files_big(sum(o.bytes)), 0
FROM useless_session AS l JOIN useless_session AS o
    ON o.tgid = l.tgid AND o.folder = rtrim(l.path, '/') AND o.time >= l.time
WHERE l.entries >= 52
GROUP BY l.tgid, l.path, l.id HAVING count(DISTINCT o.path) >= 0.8 * (any_value(l.entries) - 2)
UNION ALL
-- D4: guesses: names that differ in a number only, none of which is there.
SELECT 'D4', tgid, max(time), useless_numbered(path), count(DISTINCT path), count(*), 0, 0
FROM useless_look WHERE result = -2 AND regexp_matches(path, '[0-9][^/]*$')
GROUP BY tgid, useless_numbered(path) HAVING count(DISTINCT path) >= 5
UNION ALL
-- D5: asked again within 5 s, with the same answer, and not at a steady pace, which is D13.
SELECT 'D5', a.tgid, max(a.time), a.path, count(*), count(*), 0, 0
FROM useless_asked AS a LEFT JOIN useless_d13 AS d
    ON d.tgid = a.tgid AND d.path = a.path AND d.call = a.call
WHERE gap < 5_000_000_000 AND d.tgid IS NULL
GROUP BY a.tgid, a.path, a.call, a.result HAVING count(*) >= 3
UNION ALL
-- D6: looked for by its name while it is open.
SELECT 'D6', l.tgid, max(l.time), any_value(l.path), count(DISTINCT l.time), count(DISTINCT l.time),
    0, 0
FROM useless_look AS l JOIN useless_session AS s
    ON s.tgid = l.tgid AND s.inode = l.inode AND s.device = l.device AND s.time < l.time
    AND (s.to_ns IS NULL OR l.time < s.to_ns)
WHERE l.result >= 0 AND l.inode > 0 AND s.lists = 0 AND s.mode & 16384 = 0 AND NOT s.pseudo
GROUP BY l.tgid, l.device, l.inode HAVING count(DISTINCT l.time) >= 3
UNION ALL
-- D8: more names that are not there than names that are.
SELECT 'D8', tgid, max(time), mode(useless_folder(path)) FILTER (result = -2),
    count(DISTINCT path) FILTER (result = -2), count(*) FILTER (result = -2), 0, 0
FROM useless_look WHERE opens GROUP BY tgid
HAVING count(DISTINCT path) FILTER (result = -2) >= 20
    AND count(*) FILTER (result = -2) > 0.5 * count(*)
UNION ALL
-- D9: many files of a directory are opened, and at most their beginning is read.
SELECT 'D9', tgid, max(time), folder, count(*), 2 * count(*), files_big(sum(bytes)), 0
FROM useless_session
WHERE to_ns IS NOT NULL AND inode > 0 AND maps + writes + lists = 0 AND NOT pseudo
    AND (bytes = 0 OR bytes <= 4096 AND bytes < size) AND mode & 16963 = 0
GROUP BY tgid, folder HAVING count(DISTINCT path) >= 20
UNION ALL
-- D10: the same text is written to the beginning of a file, each time it is opened.
SELECT 'D10', tgid, max(time), path, count(*), 3 * count(*), files_big(sum(written)), 0
FROM (
    SELECT *, text = lag(text) OVER (PARTITION BY tgid, path ORDER BY time) AS same
    FROM useless_session WHERE writes = 1 AND written > 0 AND list_max(text) > 0
        AND mode & 1024 = 0
) WHERE same GROUP BY tgid, path HAVING count(*) >= 2
UNION ALL
-- D12: opened at a steady pace, for one read or write each time.
SELECT 'D12', tgid, max(time), path, count(*), 2 * count(*), 0, 0
FROM (
    SELECT *, time - lag(time) OVER (PARTITION BY tgid, path ORDER BY time) AS gap
    FROM useless_session WHERE data = 1 AND maps + lists = 0 AND to_ns IS NOT NULL
) GROUP BY tgid, path
HAVING count(*) >= 3 AND useless_steady(list(gap) FILTER (gap IS NOT NULL))
    AND median(gap) >= 1_000_000
UNION ALL
SELECT 'D13', tgid, NULL, path, files_big(sum(times)), files_big(sum(times)), 0,
    files_big(sum(times))
FROM useless_d13 AS d WHERE NOT EXISTS (
    FROM useless_look AS w WHERE w.call = 'inotify_add_watch' AND w.tgid = d.tgid
        AND w.path = d.path AND w.result >= 0
) GROUP BY tgid, path
UNION ALL
-- D16: woken by a timer, to move no byte in less than a millisecond.
SELECT 'D16', w.tgid, max(w.time), format('thread {}', w.pid), count(*), 0, 0, count(*)
FROM TIMED_WAKE AS w ASOF LEFT JOIN (FROM files_use WHERE result > 0) AS u
    ON u.pid = w.pid AND w.time >= u.time
-- The signal of an interval timer is D17.
ASOF LEFT JOIN TICKED AS t ON t.pid = w.tgid AND w.time >= t.time
WHERE w.ran < 1_000_000 AND (u.time IS NULL OR u.time < w.time - w.ran::BIGINT - 100_000)
    AND (t.time IS NULL OR t.time < w.time - w.ran::BIGINT - 1_000_000)
GROUP BY w.tgid, w.pid HAVING count(*) >= 20
UNION ALL
-- D17: an interval timer that interrupts a process which moves no byte meanwhile.
SELECT 'D17', pid, max(time), 'interval timer', count(*), count(*), 0, count(*)
FROM (
    SELECT t.pid, t.time, t.time - lag(t.time) OVER (PARTITION BY t.pid ORDER BY t.time) AS gap,
        u.time AS used
    FROM TICKED AS t ASOF LEFT JOIN (FROM files_use WHERE result > 0) AS u
        ON u.tgid = t.pid AND t.time >= u.time
) GROUP BY pid
HAVING count(*) >= 3 AND median(gap) <= 1_000_000_000
    AND count(*) FILTER (used IS NULL OR used < time - gap) >= 0.8 * count(*)
    AND useless_steady(list(gap) FILTER (gap IS NOT NULL))
UNION ALL
-- D20: the same short command again and again.
SELECT 'D20', parent, max(from_ns), format('command {}', comm), count(*), 0, 0, count(*)
FROM (
    SELECT p.pid, any_value(parent) AS parent, arg_max(comm, from_ns) AS comm,
        min(from_ns) AS from_ns, max(e.time) AS to_ns
    FROM klogger.process AS p JOIN PROCESS_EXIT AS e USING (pid)
    WHERE p.pid = p.tgid AND NOT recorder AND p.pid > 0 GROUP BY p.pid
) WHERE to_ns - from_ns < 50_000_000 AND from_ns > 0
GROUP BY parent, comm HAVING count(*) >= 10
UNION ALL
-- D26: polls what the kernel says of itself.
SELECT 'D26', tgid, max(time), mode(folder), count(*), 3 * count(*), files_big(sum(bytes)),
    files_big(sum((gap >= 100_000_000)::INT))
FROM (
    SELECT *, time - lag(time) OVER (PARTITION BY tgid ORDER BY time) AS gap
    FROM useless_session WHERE pseudo AND NOT starts_with(path, '/dev/') AND bytes > 0
) GROUP BY tgid
HAVING count(*) >= 10 AND count(*) FILTER (gap >= 100_000_000) >= 3;

-- D7: an output is written again with the same text, from inputs that have not changed.
INSERT INTO useless_found
WITH output AS (
    SELECT o.tgid, o.path, o.time, o.text, o.written, (
        SELECT list_sort(list(DISTINCT hash(i.device, i.inode, i.size, i.mtime)))
        FROM useless_session AS i WHERE i.tgid = o.tgid AND i.bytes > 0 AND NOT i.pseudo
            AND i.path <> o.path AND i.time <= o.time
    ) AS inputs
    FROM useless_session AS o WHERE o.written > 0 AND o.mode & 512 > 0
), again AS (
    SELECT *, lag(tgid) OVER same <> tgid AND text = lag(text) OVER same
        AND inputs = lag(inputs) OVER same AND written = lag(written) OVER same AS useless
    FROM output WHERE len(inputs) > 0 AND list_max(text) > 0
    WINDOW same AS (PARTITION BY path ORDER BY time)
)
SELECT 'D7', max(tgid), max(time), path, count(*), 0, files_big(sum(written)), 0
FROM again WHERE useless GROUP BY path;

CREATE TEMP TABLE useless_rule AS FROM (VALUES
    ('D1', 'reads an unchanged file again', 'keep what was read'),
    ('D3', 'opens all of a large directory', 'keep one file, or an index'),
    ('D4', 'guesses names with numbers', 'list the directory'),
    ('D5', 'asks again what it knows', 'keep the answer'),
    ('D6', 'looks up a file that it has open', 'use the descriptor'),
    ('D7', 'makes the same output again', 'compare the times first'),
    ('D8', 'tries names that are not there', 'list the directory, or keep a cache'),
    ('D9', 'opens files without need', 'keep a cache of what they are'),
    ('D10', 'writes what is there already', 'compare before writing'),
    ('D12', 'opens for each access', 'keep the descriptor'),
    ('D13', 'polls by stat', 'inotify'),
    ('D16', 'wakes up for nothing', 'wait for an event'),
    ('D17', 'has an idle interval timer', 'stop the timer when idle'),
    ('D20', 'repeats a short command', 'do it in one process'),
    ('D26', 'polls the kernel''s files', 'poll less often, keep them open')
) AS rule(rule, what, remedy);
