-- SPDX-License-Identifier: GPL-2.0-only
-- inside: what happened within each pair that began and ended in one thread (sites below 100), if
-- the log has it.
--
--   id           which pair: its rowid. Pairs in which nothing happened have no row
--   interrupts   ns in interrupts and softirqs that interrupted the thread (sites from 200 on)
--   off_cpu      ns in which the thread had no CPU; without meaning if the scheduler was not
--                recorded (inside_scheduled)
--
-- What happens inside of nested actions counts for the one that began last. Includes _pair first.

SET VARIABLE inside_scheduler = (
    SELECT CASE WHEN count(DISTINCT table_name) = 2
                THEN 'SELECT pid AS tid, time, true AS begins FROM SCHEDOUT UNION ALL SELECT pid, '
                     'time, false FROM SCHEDIN'
                ELSE 'SELECT 0 AS tid, 0 AS time, true AS begins WHERE false' END
    FROM information_schema.tables WHERE table_name IN ('SCHEDOUT', 'SCHEDIN'));
SET VARIABLE inside_scheduled = (
    SELECT count(DISTINCT table_name) = 2 FROM information_schema.tables
    WHERE table_name IN ('SCHEDOUT', 'SCHEDIN'));
CREATE TEMP TABLE inside_absence AS
SELECT tid, time AS from_ns, next AS to_ns
FROM (SELECT *, lead(time) OVER thread AS next, lead(begins) OVER thread AS begins_next
      FROM query(getvariable('inside_scheduler'))
      WINDOW thread AS (PARTITION BY tid ORDER BY time, begins DESC))
WHERE begins AND NOT begins_next AND tid <> 0;
-- Interrupts contain softirqs, and these timer callbacks: what overlaps on a CPU is one
-- interruption.
CREATE TEMP TABLE inside_interrupt AS
WITH begun AS (
    SELECT *, coalesce(from_ns > max(to_ns) OVER (cpu ROWS BETWEEN UNBOUNDED PRECEDING
        AND 1 PRECEDING), true) AS first
    FROM (SELECT *, from_cpu AS cpu FROM pair WHERE site >= 200 AND NOT torn)
    WINDOW cpu AS (PARTITION BY cpu ORDER BY from_ns, to_ns DESC)
), numbered AS (
    SELECT *, count(*) FILTER (first) OVER (PARTITION BY cpu
        ORDER BY from_ns, to_ns DESC ROWS UNBOUNDED PRECEDING) AS number
    FROM begun
)
SELECT any_value(tid) AS tid, min(from_ns) AS from_ns, max(to_ns) AS to_ns FROM numbered
GROUP BY cpu, number;
-- An interrupt while a thread is off its CPU is another thread's, so that the two do not overlap.
CREATE TEMP TABLE inside AS
WITH part AS (
    SELECT tid, from_ns, to_ns, true AS interrupt FROM inside_interrupt
    UNION ALL
    SELECT tid, from_ns, to_ns, false FROM inside_absence
), placed AS (
    SELECT p.id, i.to_ns - i.from_ns AS ns, i.interrupt
    FROM part AS i
    ASOF JOIN (SELECT rowid AS id, tid, from_ns, to_ns FROM pair WHERE site < 100) AS p
        ON i.tid = p.tid AND i.from_ns >= p.from_ns
    WHERE i.to_ns <= p.to_ns
)
SELECT id, coalesce(sum(ns) FILTER (interrupt), 0)::BIGINT AS interrupts,
       coalesce(sum(ns) FILTER (NOT interrupt), 0)::BIGINT AS off_cpu
FROM placed GROUP BY id;
DROP TABLE inside_absence;
DROP TABLE inside_interrupt;
