-- SPDX-License-Identifier: GPL-2.0-only
-- title: Who ends waits, over several threads
-- question: What had the threads waited for that ended the waits, and who had ended that?
-- order: 45
-- events: BLOCKED, WOKEN, BACK
-- include: _waits
-- picture: flame x=total y=stack
-- combine: sum
-- column program: program that waited
-- column steps [count]: wake-ups that follow each other, 5 at most
-- column times [count]: waits
-- column total [ns, bar]: from leaving the CPU to being woken, of all threads together
-- column max [ns, max]: the longest
-- column stack: the program that waited, with its functions and the kernel's; then each that woke
--     the one before it, with the stack of its own last wait
-- note: Of waits that a thread ended. A chain ends where the waker had not waited since the first
--     wait began, and at an interrupt.
-- empty: no wait was ended by a thread while the log was recorded

CREATE TEMP TABLE chain_wait AS
SELECT row_number() OVER () AS id, pid, time, from_ns, woken_ns, stack, user_stack,
    CASE source WHEN 0 THEN waker END AS waker,
    'woken by ' || replace(CASE source WHEN 0 THEN comm(waker, woken_ns)
        ELSE wake_source(source) END, ';', ':') AS ender
FROM wait;
CREATE TEMP TABLE chain_named AS FROM klogger.with_program('chain_wait');
CREATE TEMP TABLE chain_place AS SELECT DISTINCT program, stack, user_stack FROM chain_named;
CREATE TEMP TABLE chain_path AS
SELECT dense_rank() OVER (ORDER BY path) AS place, program, stack, user_stack, path
FROM klogger.with_path('chain_place');
CREATE TEMP TABLE chain_of AS SELECT DISTINCT place, path FROM chain_path;

-- Each wait with the waker's own last one: `before`.
CREATE TEMP TABLE chain_ended AS
SELECT w.id, w.pid, w.time, w.from_ns, w.woken_ns, w.waker, w.ender, p.place
FROM chain_named AS w JOIN chain_path AS p ON p.program IS NOT DISTINCT FROM w.program
    AND p.stack IS NOT DISTINCT FROM w.stack AND p.user_stack IS NOT DISTINCT FROM w.user_stack;
CREATE TEMP TABLE chain_link AS
SELECT w.id, w.from_ns, w.woken_ns, w.waker, w.ender, w.place, b.id AS before
FROM chain_ended AS w ASOF LEFT JOIN chain_ended AS b ON b.pid = w.waker AND w.woken_ns >= b.time;
DROP TABLE chain_ended;

-- A waker's wait that was over before the first thread waited has not delayed it.
CREATE TEMP TABLE chain_sum AS
SELECT a.place AS place_1, a.ender AS ender_1, b.place AS place_2, b.ender AS ender_2,
    c.place AS place_3, c.ender AS ender_3, d.place AS place_4, d.ender AS ender_4,
    e.place AS place_5, e.ender AS ender_5, count(*) AS times,
    sum(a.woken_ns - a.from_ns)::BIGINT AS total, max(a.woken_ns - a.from_ns) AS max
FROM chain_link AS a
LEFT JOIN chain_link AS b ON b.id = a.before AND b.woken_ns > a.from_ns
LEFT JOIN chain_link AS c ON c.id = b.before AND c.woken_ns > a.from_ns
LEFT JOIN chain_link AS d ON d.id = c.before AND d.woken_ns > a.from_ns
LEFT JOIN chain_link AS e ON e.id = d.before AND e.woken_ns > a.from_ns
WHERE a.waker IS NOT NULL GROUP BY ALL;

CREATE TEMP MACRO chain_step(ender, path) AS
    list_concat(CASE WHEN ender IS NULL THEN []::VARCHAR[] ELSE [ender] END,
        coalesce(path[2:], []::VARCHAR[]));
CREATE TEMP TABLE chain AS
SELECT a.path[1] AS program, s.times, s.total, s.max,
    list_count([ender_1, ender_2, ender_3, ender_4, ender_5]) AS steps,
    list_concat(a.path, chain_step(ender_1, b.path), chain_step(ender_2, c.path),
        chain_step(ender_3, d.path), chain_step(ender_4, e.path),
        chain_step(ender_5, []::VARCHAR[])) AS path
FROM chain_sum AS s JOIN chain_of AS a ON a.place = s.place_1
LEFT JOIN chain_of AS b ON b.place = s.place_2 LEFT JOIN chain_of AS c ON c.place = s.place_3
LEFT JOIN chain_of AS d ON d.place = s.place_4 LEFT JOIN chain_of AS e ON e.place = s.place_5;

-- table
SELECT program, steps, times, total, max, array_to_string(path, ';') AS stack
FROM chain ORDER BY total DESC, program, stack;

-- picture
FROM klogger.flame('chain') ORDER BY total DESC, stack;
