-- SPDX-License-Identifier: GPL-2.0-only
-- The rules about devices, the kernel, starts and memory, and what all rules are called. Those that
-- need another schema, or a parameter, have no findings without it; the analysis `rules` says so.

-- D2 (information): descriptions of devices that are not there. A process that lists devices reads
-- small files of one folder, each whole and once, whose names no device has.
INSERT INTO useless_found
WITH device AS (
    SELECT tgid, min(time) AS time FROM useless_session
    WHERE lists > 0 AND (starts_with(path, '/sys/') OR starts_with(path, '/dev')
        OR starts_with(path, '/proc/bus')) GROUP BY tgid
), description AS (
    SELECT s.tgid, s.folder, s.path, min(s.time) AS time, sum(bytes) AS bytes,
        regexp_extract(s.path, '([^/]+?)(\.[^./]*)?$', 1) AS key
    FROM useless_session AS s JOIN device AS d USING (tgid)
    WHERE bytes > 0 AND bytes <= 4096 AND bytes >= size AND maps + writes + lists = 0
        AND NOT pseudo GROUP BY ALL HAVING count(*) = 1
)
SELECT 'D2', tgid, min(time), max(time), folder, count(*), 3 * count(*), files_big(sum(bytes)), 0,
    format('read whole, such as {}; no device has the name', arg_min(path, time))
FROM description AS d WHERE NOT EXISTS (
    FROM useless_look AS l WHERE l.tgid = d.tgid AND l.result >= 0
        AND (starts_with(l.path, '/sys/') OR starts_with(l.path, '/dev/'))
        AND contains(l.path, d.key)
) GROUP BY tgid, folder HAVING count(*) >= 20;

-- D11: tells an interrupt where to go that does not occur: not in the minute before, nor after.
INSERT INTO useless_found
WITH told AS (
    SELECT tgid, time, path, TRY_CAST(regexp_extract(path, '^/proc/irq/([0-9]{1,6})/', 1) AS INT)
        AS irq
    FROM useless_session WHERE writes > 0 AND written > 0
        AND regexp_matches(path, '^/proc/irq/[0-9]+/smp_affinity(_list)?$')
)
SELECT 'D11', tgid, min(time), max(time), format('interrupt {}', irq), count(*), 3 * count(*), 0, 0,
    format('no interrupt {} within a minute', irq)
FROM told AS t WHERE NOT EXISTS (
    FROM IRQ_SEEN AS i WHERE i.irq = t.irq AND abs(i.time - t.time) < 60_000_000_000
) GROUP BY tgid, irq;

-- Pages that were read from a device, not the new ones of files that the process writes.
CREATE TEMP TABLE useless_filled AS
SELECT tgid, time, device, inode FROM FILLED AS f WHERE NOT EXISTS (
    FROM files_use AS u WHERE u.kind = 'write' AND u.tgid = f.tgid AND u.inode = f.inode
        AND u.device = f.device);

-- D14 (information): files of another program are read from the device. Of a path such as
-- /usr/lib/NAME/..., NAME is the program.
CREATE TEMP MACRO useless_owner(path) AS
    regexp_extract(path, '/(?:lib|lib64|libexec|share|opt)/([^/]+)/', 1);
INSERT INTO useless_found
WITH cold AS (
    SELECT tgid, device, inode, min(time) AS first, max(time) AS last, count(*) AS pages
    FROM useless_filled GROUP BY ALL
), named AS (
    SELECT c.*, l.path, useless_owner(l.path) AS owner, lower(k.comm) AS comm
    FROM cold AS c JOIN (
        SELECT tgid, device, inode, any_value(path) AS path FROM useless_look
        WHERE inode > 0 GROUP BY ALL
    ) AS l USING (tgid, device, inode) JOIN klogger.thread AS k ON k.pid = c.tgid
)
SELECT 'D14', tgid, min(first), max(last), regexp_extract(path, '^.*?/(?:lib|lib64|libexec|share'
        || '|opt)/[^/]+', 0) AS object,
    count(DISTINCT path), 0, files_big(4096 * sum(pages)), 0,
    format('from the device, such as {}', arg_min(path, first))
FROM named
-- What many programs share has two hyphens (a machine's name) or is listed.
WHERE owner <> '' AND NOT regexp_matches(owner, '-.*-') AND owner NOT IN ('locale', 'zoneinfo',
        'fonts', 'icons', 'mime', 'gconv', 'ssl', 'terminfo', 'X11', 'misc', 'themes')
    AND NOT starts_with(comm, lower(regexp_extract(owner, '^[A-Za-z]*', 0)))
    AND NOT starts_with(lower(owner), regexp_extract(comm, '^[a-z]*', 0))
GROUP BY tgid, object HAVING count(DISTINCT path) >= 5;

-- D15 (information): a burst of looks for one name in folders that differ in a number, such as a
-- size, or with several endings. At most one of them is used.
CREATE TEMP MACRO useless_variant(path) AS
    regexp_replace(useless_folder(path), '[0-9]+', '#', 'g') || '/'
    || regexp_replace(regexp_extract(path, '[^/]*$', 0), '([^/.])\.[A-Za-z0-9]+$', '\1.*');
INSERT INTO useless_found
WITH looked AS (
    SELECT tgid, path, time, useless_variant(path) AS variant FROM useless_asked
    WHERE NOT useless_is_pseudo(path) AND NOT ends_with(path, '/')
    UNION ALL SELECT tgid, path, time, useless_variant(path) FROM useless_session WHERE NOT pseudo
), burst AS (
    SELECT *, lead(time, 4) OVER (PARTITION BY tgid, variant ORDER BY time) - time AS took
    FROM looked
)
SELECT 'D15', tgid, min(time), max(time), variant, count(DISTINCT path), count(*), 0, 0,
    format('{} in {}', count(*), duration(max(time) - min(time)))
FROM burst AS b GROUP BY tgid, variant
HAVING count(DISTINCT path) >= 5 AND min(took) <= 100_000_000
    AND (SELECT count(DISTINCT s.path) FROM useless_session AS s
        WHERE s.tgid = b.tgid AND useless_variant(s.path) = b.variant
            AND bytes + maps + lists > 0) <= 1;

-- D18 (information): timers of the kernel's own.
INSERT INTO useless_found
SELECT 'D18', NULL, min(time), max(time), coalesce(fn_symbol, hex(fn)), count(*), 0, 0,
    count(*) FILTER (NOT may_wait),
    format('{}, every {}', CASE WHEN bool_or(high) THEN 'high resolution' ELSE 'timer wheel' END
        || CASE WHEN bool_and(may_wait) THEN ', deferrable' ELSE '' END,
        duration((max(time) - min(time)) // greatest(count(*) - 1, 1)))
FROM KERNEL_TIMER WHERE useless_whose(fn_symbol) = 'kernel'
GROUP BY ALL HAVING count(*) >= 10;

-- D19: a process waits again and again, in its first 10 s, for pages that could be read ahead.
INSERT INTO useless_found
WITH born AS (
    SELECT tgid, min(from_ns) AS from_ns FROM klogger.process
    WHERE NOT recorder AND tgid > 0 GROUP BY tgid
), waited AS (
    SELECT w.tgid, w.time, w.took, f.inode, f.device
    FROM (SELECT tgid, time, least(took, 10_000_000_000)::BIGINT AS took FROM IO_WAITED) AS w
    JOIN born AS b USING (tgid) ASOF JOIN useless_filled AS f
        ON f.tgid = w.tgid AND w.time >= f.time
    WHERE w.took < 10_000_000_000 AND w.time - b.from_ns < 10_000_000_000
        -- The pages are filled just before it sleeps.
        AND f.time >= w.time - w.took - 1_000_000
)
SELECT 'D19', tgid, min(time), max(time), format('start of {}', comm(tgid, max(time))),
    count(DISTINCT (inode, device)), 0, 0, count(*),
    format('{} waits for the device, {} in all', count(*), duration(sum(took)::BIGINT))
FROM waited GROUP BY tgid HAVING count(DISTINCT (inode, device)) >= 20;

-- D21 (information): more is looked up after a mark 'stop ...' than after the mark 'start ...'
-- before it, each until the next mark.
CREATE TEMP TABLE useless_window AS
SELECT time AS from_ns, coalesce(lead(time) OVER (ORDER BY time), to_ns) AS to_ns, number, text,
    CASE WHEN regexp_matches(lower(text), '^(start|boot)') THEN 'start'
        WHEN regexp_matches(lower(text), '^(stop|shutdown)') THEN 'stop' END AS kind
FROM MARK, klogger.recording;
INSERT INTO useless_found
WITH many AS (
    SELECT w.kind, w.text, w.from_ns, w.to_ns, count(l.time) AS looks
    FROM useless_window AS w LEFT JOIN useless_look AS l
        ON l.time >= w.from_ns AND l.time < w.to_ns AND comm(l.tgid, l.time) <> 'klogger'
    WHERE w.kind IS NOT NULL GROUP BY ALL
)
SELECT 'D21', NULL, b.from_ns, b.to_ns, b.text, b.looks, b.looks - a.looks, 0, 0,
    format('{} looks after ''{}''', a.looks, a.text)
FROM (FROM many WHERE kind = 'stop') AS b ASOF JOIN (FROM many WHERE kind = 'start') AS a
    ON b.from_ns >= a.from_ns
WHERE b.looks > a.looks;

-- The tables of other schemata, empty if these were not recorded.
SET VARIABLE useless_has = (SELECT list(upper(table_name)) FROM information_schema.tables);
SET VARIABLE useless_delivered = CASE WHEN list_contains(getvariable('useless_has'), 'DELIVERED')
    THEN 'SELECT time, tgid, sig, signal(sig) AS name, user_stack FROM DELIVERED WHERE action = 0'
    ELSE 'SELECT 0::BIGINT AS time, 0 AS tgid, 0::SMALLINT AS sig, '''' AS name, '
        '0::UINTEGER AS user_stack WHERE false' END;
CREATE TEMP TABLE useless_delivered AS FROM query(getvariable('useless_delivered'));
SET VARIABLE useless_overrun = CASE WHEN list_contains(getvariable('useless_has'), 'OVERRUN')
    THEN 'SELECT time, tgid, finder(finder) AS finder, user_stack FROM OVERRUN'
    ELSE 'SELECT 0::BIGINT AS time, 0 AS tgid, '''' AS finder, 0::UINTEGER AS user_stack '
        'WHERE false' END;
CREATE TEMP TABLE useless_overrun AS FROM query(getvariable('useless_overrun'));
CREATE TEMP MACRO useless_functions(number) AS coalesce(nullif((
    SELECT array_to_string(list_slice(s.frames, 1, 4), ' < ') FROM klogger.stack AS s
    WHERE s.id = number AND number > 0), ''), 'no stack');

-- D24: an overrun that was noticed. The functions of the library call each other; each is logged.
CREATE TEMP TABLE useless_overran AS
SELECT tgid, min(time) AS time, arg_min(finder, time) AS finder,
    arg_min(user_stack, time) AS user_stack
FROM useless_overrun GROUP BY tgid;
INSERT INTO useless_found
SELECT 'D24', max(tgid), min(o.time), max(o.time), format('overrun of {}', finder),
    count(*), 0, 0, 0, useless_functions(arg_min(user_stack, o.time))
FROM useless_overran AS o GROUP BY comm(tgid, o.time), finder;

-- D22 (a limit): memory that was not initialised cannot be seen, but the crash that follows can.
INSERT INTO useless_found
SELECT 'D22', d.tgid, min(d.time), max(d.time), any_value(name), 1, 0, 0, 0,
    useless_functions(arg_min(d.user_stack, d.time))
FROM useless_delivered AS d LEFT JOIN useless_overran AS o USING (tgid)
WHERE sig IN (4, 6, 7, 8, 11) AND o.tgid IS NULL GROUP BY d.tgid, sig;

CREATE TEMP TABLE useless_rule AS
SELECT * REPLACE (CASE kind WHEN 'i' THEN 'information' WHEN 'l' THEN 'limit' ELSE 'rule' END
    AS kind)
FROM (VALUES
    (1, '', 'reads an unchanged file again', 'keep what was read'),
    (2, 'i', 'reads about absent devices', 'look for what there is'),
    (3, '', 'opens all of a large directory', 'keep one file, or an index'),
    (4, '', 'guesses names with numbers', 'list the directory'),
    (5, '', 'asks again what it knows', 'keep the answer'),
    (6, '', 'looks up a file that it has open', 'use the descriptor'),
    (7, '', 'makes the same output again', 'compare the times first'),
    (8, '', 'tries names that are not there', 'list the directory, or keep a cache'),
    (9, '', 'opens files without need', 'keep a cache of what they are'),
    (10, '', 'writes what is there already', 'compare before writing'),
    (11, '', 'moves a silent interrupt', 'count its interrupts first'),
    (12, '', 'opens for each access', 'keep the descriptor'),
    (13, '', 'polls by stat', 'inotify'),
    (14, 'i', 'reads files of other programs', 'load them when they are needed'),
    (15, 'i', 'looks for each variant of a name', 'an index'),
    (16, '', 'wakes up for nothing', 'wait for an event'),
    (17, '', 'has an idle interval timer', 'stop the timer when idle'),
    (18, 'i', 'has timers of the kernel''s own', 'a longer period, or a deferrable timer'),
    (19, '', 'waits for each file at its start', 'read ahead; cold has the list'),
    (20, '', 'repeats a short command', 'do it in one process'),
    (21, 'i', 'looks up more when it stops', 'compare both windows in totals'),
    (22, 'l', 'crashes: memory not initialised?', 'run it with MALLOC_PERTURB_, and valgrind'),
    (23, 'l', 'swaps the arguments of memset', '-Wmemset-transposed-args'),
    (24, '', 'writes beyond a buffer', 'correct the length'),
    (25, 'l', 'ignores warnings of the compiler', '-Wall -Wextra'),
    (26, '', 'polls the kernel''s files', 'poll less often, keep them open')
) AS rule(number, kind, what, remedy);
