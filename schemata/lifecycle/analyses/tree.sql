-- SPDX-License-Identifier: GPL-2.0-only
-- title: Processes
-- question: Which processes were there, who made them, how long did they live, how did they end?
-- order: 10
-- events: STARTED, RAN, ENDED
-- include: _lives
-- picture: timeline x=from_ns x2=to_ns row=process colour=ending
-- column process: process; its program and number, below the one that made it
-- column began [ns]: time of its beginning
-- column lived [ns, bar]: from its beginning to its end, or to the end of the log
-- column threads [count]: that it made
-- column children [count]: processes that it made
-- column ending: how it ended
-- column from_ns [ns]: beginning
-- column to_ns [ns]: end
-- empty: no process in scope began, ran a program or ended while the log was recorded

CREATE TEMP TABLE tree_threads AS
SELECT l.id, count(*) AS threads FROM lives AS l JOIN STARTED AS s
    ON s.tgid = l.tgid AND s.pid <> s.tgid AND s.time >= l.from_ns
    AND (l.to_ns IS NULL OR s.time <= l.to_ns)
GROUP BY l.id;
CREATE TEMP TABLE tree_parent AS
SELECT c.id, p.id AS above FROM life AS c ASOF LEFT JOIN life AS p
    ON p.tgid = c.parent AND c.from_ns >= p.from_ns;
CREATE TEMP TABLE tree_shown AS
WITH RECURSIVE tree AS (
    SELECT id, 0 AS depth, [id] AS path FROM tree_parent WHERE above IS NULL
    UNION ALL
    SELECT c.id, depth + 1, list_append(path, c.id) FROM tree JOIN tree_parent AS c
        ON c.above = tree.id WHERE depth < 100
)
SELECT path, depth, l.*, coalesce(t.threads, 0) AS threads,
    (SELECT count(*) FROM tree_parent AS c WHERE c.above = l.id) AS children,
    lives_ending(l.code, l.to_ns) AS ending, r.to_ns AS log_end
FROM tree JOIN life AS l USING (id) LEFT JOIN tree_threads AS t USING (id), klogger.recording AS r;

-- table
SELECT repeat('  ', depth) || format('{}[{}]', program, tgid) AS process, from_ns AS began,
    greatest(coalesce(to_ns, log_end) - from_ns, 0) AS lived, threads, children, ending
FROM tree_shown ORDER BY path;

-- picture
SELECT from_ns, coalesce(to_ns, log_end) AS to_ns, format('{} {}', tgid, program) AS process,
    CASE WHEN starts_with(ending, 'exit ') AND ending <> 'exit 0' THEN 'another exit code'
        ELSE ending END AS ending
FROM tree_shown ORDER BY from_ns, tgid LIMIT 40;

-- finding
SELECT format('{:,} {}, {:,} of which ran a program; {:,} ended by a signal, {:,} with another '
    'exit code than 0.', count(*), CASE count(*) WHEN 1 THEN 'process' ELSE 'processes' END,
    count(*) FILTER (execs > 0), count(*) FILTER (code & 127 > 0),
    count(*) FILTER (code & 127 = 0 AND code > 0))
FROM tree_shown HAVING count(*) > 0;
