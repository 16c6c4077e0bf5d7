-- SPDX-License-Identifier: GPL-2.0-only
-- The rules about files and wake-ups; `_machine.sql` has the others. Each finding says which
-- process (NULL: several), what it is about, how often, and what could be saved. The numbers D1 to
-- D26 are those of "Why Userspace Sucks" (Jones, 2006) in the order of its examples.

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
SELECT tgid, path, call, min(time) AS first, max(time) AS last, count(*) AS times,
    median(gap)::BIGINT AS period
FROM useless_asked GROUP BY tgid, path, call, file, result, changes
HAVING count(*) >= 3 AND useless_steady(list(gap) FILTER (gap IS NOT NULL))
    AND median(gap) >= 20_000_000;

CREATE TEMP TABLE useless_found (rule VARCHAR, pid INT, first BIGINT, last BIGINT, object VARCHAR,
    times BIGINT, calls BIGINT, bytes BIGINT, wakeups BIGINT, evidence VARCHAR);

-- D1: read several times, though it has not changed.
INSERT INTO useless_found
SELECT 'D1', tgid, min(time), max(time), any_value(path), count(*) - 1, 3 * (count(*) - 1),
    files_big(sum(bytes) - arg_min(bytes, time)), 0,
    format('size {}, time of modification the same', any_value(size))
FROM useless_session WHERE bytes > 0 AND writes = 0 AND inode > 0 AND NOT pseudo
GROUP BY tgid, device, inode, size, mtime HAVING count(*) >= 3;

-- D3: a database made of files: most of a large directory is opened, after it was listed.
INSERT INTO useless_found
SELECT 'D3', l.tgid, min(o.time), max(o.time), rtrim(l.path, '/'), count(DISTINCT o.path),
    3 * count(DISTINCT o.path), files_big(sum(o.bytes)), 0,
    format('{} of {} entries', count(DISTINCT o.path), any_value(l.entries) - 2)
FROM useless_session AS l JOIN useless_session AS o
    ON o.tgid = l.tgid AND o.folder = rtrim(l.path, '/') AND o.time >= l.time
-- Not the folders in it.
WHERE l.entries >= 52 AND o.lists = 0 AND o.mode & 16384 = 0
GROUP BY l.tgid, l.path, l.id HAVING count(DISTINCT o.path) >= 0.8 * (any_value(l.entries) - 2);

-- D4: guesses: names that differ in a number only, none of which is there, nor is made later.
INSERT INTO useless_found
SELECT 'D4', tgid, min(time), max(time), useless_numbered(path), count(DISTINCT path), count(*),
    0, 0, format('from {} on', arg_min(path, time))
FROM useless_look AS l WHERE result = -2 AND regexp_matches(path, '[0-9][^/]*$')
    AND NOT EXISTS (
        FROM useless_look AS f WHERE f.tgid = l.tgid AND f.path = l.path AND f.result >= 0)
GROUP BY tgid, useless_numbered(path) HAVING count(DISTINCT path) >= 5;

-- D5: asked again within 5 s, with the same answer, and not at a steady pace, which is D13.
INSERT INTO useless_found
SELECT 'D5', a.tgid, min(a.time), max(a.time), a.path, count(*), count(*), 0, 0,
    format('{} = {}', a.call, errno(a.result))
FROM useless_asked AS a LEFT JOIN useless_d13 AS d
    ON d.tgid = a.tgid AND d.path = a.path AND d.call = a.call
WHERE gap < 5_000_000_000 AND d.tgid IS NULL
GROUP BY a.tgid, a.path, a.call, a.result HAVING count(*) >= 3;

-- D6: looked for by its name while it is open.
INSERT INTO useless_found
SELECT 'D6', l.tgid, min(l.time), max(l.time), any_value(l.path), count(DISTINCT l.time),
    count(DISTINCT l.time), 0, 0,
    format('{} while it is open as {}', mode(l.call), any_value(s.fd))
FROM useless_look AS l JOIN useless_session AS s
    ON s.tgid = l.tgid AND s.inode = l.inode AND s.device = l.device AND s.time < l.time
    AND (s.to_ns IS NULL OR l.time < s.to_ns)
WHERE l.result >= 0 AND l.inode > 0 AND s.lists = 0 AND s.mode & 16384 = 0 AND NOT s.pseudo
GROUP BY l.tgid, l.device, l.inode HAVING count(DISTINCT l.time) >= 3;

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
SELECT 'D7', max(tgid), min(time), max(time), path, count(*), 0, files_big(sum(written)), 0,
    format('inputs that have not changed: {}', max(len(inputs)))
FROM again WHERE useless GROUP BY path;

-- D8: more names that are not there than names that are.
INSERT INTO useless_found
SELECT 'D8', tgid, min(time), max(time), mode(useless_folder(path)) FILTER (result = -2),
    count(DISTINCT path) FILTER (result = -2), count(*) FILTER (result = -2), 0, 0,
    format('{} of {} opens', count(*) FILTER (result = -2), count(*))
FROM useless_look WHERE opens GROUP BY tgid
HAVING count(DISTINCT path) FILTER (result = -2) >= 20
    AND count(*) FILTER (result = -2) > 0.5 * count(*);

-- D9: many files of a directory are opened, and at most their beginning is read.
INSERT INTO useless_found
SELECT 'D9', tgid, min(time), max(time), folder, count(*), 2 * count(*), files_big(sum(bytes)), 0,
    format('at most {} bytes read of each', max(bytes))
FROM useless_session
WHERE to_ns IS NOT NULL AND inode > 0 AND maps + writes + lists = 0 AND NOT pseudo
    AND (bytes = 0 OR bytes <= 4096 AND bytes < size) AND mode & 16963 = 0
GROUP BY tgid, folder HAVING count(DISTINCT path) >= 20;

-- D10: the same text is written to the beginning of a file, each time it is opened.
INSERT INTO useless_found
SELECT 'D10', tgid, min(time), max(time), path, count(*), 3 * count(*), files_big(sum(written)), 0,
    format('the same {} bytes', max(written))
FROM (
    SELECT *, text = lag(text) OVER (PARTITION BY tgid, path ORDER BY time) AS same
    FROM useless_session WHERE writes = 1 AND written > 0 AND list_max(text) > 0
        AND mode & 1024 = 0
) WHERE same GROUP BY tgid, path HAVING count(*) >= 2;

-- D12: opened at a steady pace, for one read or write each time.
INSERT INTO useless_found
SELECT 'D12', tgid, min(time), max(time), path, count(*), 2 * count(*), 0, 0,
    format('every {}', duration(median(gap)::BIGINT))
FROM (
    SELECT *, time - lag(time) OVER (PARTITION BY tgid, path ORDER BY time) AS gap
    FROM useless_session WHERE data = 1 AND maps + lists = 0 AND to_ns IS NOT NULL
) GROUP BY tgid, path
HAVING count(*) >= 3 AND useless_steady(list(gap) FILTER (gap IS NOT NULL))
    AND median(gap) >= 1_000_000;

-- D13: see above; without inotify.
INSERT INTO useless_found
SELECT 'D13', tgid, min(first), max(last), path, files_big(sum(times)), files_big(sum(times)), 0,
    files_big(sum(times)), format('{} every {}', any_value(call), duration(min(period)))
FROM useless_d13 AS d WHERE NOT EXISTS (
    FROM useless_look AS w WHERE w.call = 'inotify_add_watch' AND w.tgid = d.tgid
        AND w.path = d.path AND w.result >= 0
) GROUP BY tgid, path;

-- D16: woken by a timer, to move no byte in less than a millisecond.
INSERT INTO useless_found
SELECT 'D16', w.tgid, min(w.time), max(w.time), format('thread {}', w.pid), count(*), 0, 0,
    count(*), format('runs for {} each time', duration(median(w.ran)::BIGINT))
FROM (
    SELECT *, lag(time) OVER (PARTITION BY pid ORDER BY time) AS before FROM TIMED_WAKE
) AS w ASOF LEFT JOIN (FROM files_use WHERE result > 0) AS u
    ON u.pid = w.pid AND w.time >= u.time
-- The signal of an interval timer since the wake-up before is D17.
ASOF LEFT JOIN TICKED AS t ON t.pid = w.tgid AND w.time >= t.time
WHERE w.ran < 1_000_000 AND (u.time IS NULL OR u.time < w.time - w.ran::BIGINT - 100_000)
    AND (t.time IS NULL OR t.time < coalesce(w.before, w.time - w.ran::BIGINT - 1_000_000))
GROUP BY w.tgid, w.pid HAVING count(*) >= 20;

-- D17: an interval timer that interrupts a process which moves no byte meanwhile.
INSERT INTO useless_found
SELECT 'D17', pid, min(time), max(time), 'interval timer', count(*), count(*), 0, count(*),
    format('every {}', duration(median(gap)::BIGINT))
FROM (
    SELECT t.pid, t.time, t.time - lag(t.time) OVER (PARTITION BY t.pid ORDER BY t.time) AS gap,
        u.time AS used
    FROM TICKED AS t ASOF LEFT JOIN (FROM files_use WHERE result > 0) AS u
        ON u.tgid = t.pid AND t.time >= u.time
) GROUP BY pid
HAVING count(*) >= 3 AND median(gap) <= 1_000_000_000
    AND count(*) FILTER (used IS NULL OR used < time - gap) >= 0.8 * count(*)
    AND useless_steady(list(gap) FILTER (gap IS NOT NULL));

-- D20: the same short command again and again. A process lasts until the next exit of its id, which
-- may be used again.
INSERT INTO useless_found
SELECT 'D20', parent, min(from_ns), max(from_ns), format('command {}', comm), count(*), 0, 0,
    count(*), format('half of them end within {}', duration(median(to_ns - from_ns)::BIGINT))
FROM (
    SELECT p.pid, any_value(parent) AS parent, arg_max(comm, from_ns) AS comm,
        min(from_ns) AS from_ns, e.time AS to_ns
    FROM klogger.process AS p
    ASOF JOIN PROCESS_EXIT AS e ON p.pid = e.pid AND p.from_ns <= e.time
    WHERE p.pid = p.tgid AND NOT recorder AND p.pid > 0 GROUP BY p.pid, e.time
) WHERE to_ns - from_ns < 50_000_000 AND from_ns > 0
GROUP BY parent, comm HAVING count(*) >= 10;

-- D26: polls what the kernel says of itself.
INSERT INTO useless_found
SELECT 'D26', tgid, min(time), max(time), mode(folder), count(*), 3 * count(*),
    files_big(sum(bytes)), files_big(sum((gap >= 100_000_000)::INT)),
    format('in {} bursts', 1 + count(*) FILTER (gap >= 100_000_000))
FROM (
    SELECT *, time - lag(time) OVER (PARTITION BY tgid ORDER BY time) AS gap
    FROM useless_session WHERE pseudo AND NOT starts_with(path, '/dev/') AND bytes > 0
) GROUP BY tgid
HAVING count(*) >= 10 AND count(*) FILTER (gap >= 100_000_000) >= 3;
