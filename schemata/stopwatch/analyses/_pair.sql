-- SPDX-License-Identifier: GPL-2.0-only
-- pair: one row for each action, from its START to the STOP that belongs to it.
--
--   site, action        which stopwatch, by number and by name
--   key, kind           of the START; kind is what the key says, as text
--   tid                 the thread that was running at the START
--   from_ns, to_ns      ns since the log's start
--   from_cpu, to_cpu
--   raw                 ns between the two readings of the clock
--   ns                  the same without the logger's own cost, which makes some of them negative
--   torn                events are missing in between: not one to count
--   rowid               of this table: a number for the pair
--
-- A STOP belongs to the latest START that has no STOP yet, of the same thread (sites below 100),
-- the same key (to 199) or the same CPU (from 200 on). pair_lone has how many of each have no
-- partner.

-- 'klogger stopwatch' marks the end of its own preparations. If it holds a command back until then,
-- the mark has the number of the process that waits, and what that does before its exec is not the
-- command's.
CREATE TEMP TABLE pair_begin AS
SELECT coalesce(min(CASE WHEN m.number = 0 THEN m.time ELSE e.time END), 0) AS time
FROM MARK AS m LEFT JOIN PROCESS_EXEC AS e ON e.pid = m.number AND e.time >= m.time
WHERE m.text = 'klogger stopwatch';

-- The empty pairs, if the log has any ('klogger stopwatch' makes them).
SET VARIABLE pair_empty = (
    SELECT CASE WHEN count(DISTINCT table_name) = 2 THEN 'SELECT true AS begins, time, serial, tid '
                                                         'FROM EMPTY_START '
                || 'UNION ALL SELECT false, time, serial, tid FROM EMPTY_STOP'
                ELSE 'SELECT true AS begins, 0 AS time, 0 AS serial, 0 AS tid WHERE false' END
    FROM information_schema.tables WHERE table_name IN ('EMPTY_START', 'EMPTY_STOP'));
CREATE TEMP TABLE pair_empty AS FROM query(getvariable('pair_empty'));

-- Each event, whose it is, and `place`: its place in time. Who is both the STOP of one and the
-- START of the next has one time for both: the STOP goes first.
CREATE TEMP TABLE pair_row AS
WITH row AS (
    SELECT true AS begins, time, cpu, tid, site, key FROM START
    UNION ALL
    SELECT false, time, cpu, tid, site, key FROM STOP
    UNION ALL
    SELECT false, time, cpu, tid, site, key FROM STOP_ELSEWHERE
)
SELECT begins, time, cpu, tid, site, key, 2 * time + begins::BIGINT AS place,
       CASE WHEN site < 100 THEN tid::HUGEINT WHEN site < 200 THEN key
           ELSE cpu::HUGEINT END AS whose
FROM row WHERE time >= (SELECT time FROM pair_begin)
    AND (site >= 100 OR tid NOT IN (SELECT pid FROM klogger.recorder UNION SELECT tid
        FROM pair_empty));

-- A thread's number may be used again: what its former owner began is not the new one's. Such
-- numbers are few, and only they need the join by time.
CREATE TEMP TABLE pair_reborn AS
SELECT f.pid AS tid, f.time
FROM PROCESS_FORK AS f
JOIN (SELECT tid, min(time) AS first FROM pair_row WHERE site < 100 GROUP BY tid) AS r
    ON f.pid = r.tid
WHERE f.time > r.first;
CREATE TEMP VIEW pair_placed AS
SELECT *, 0::BIGINT AS born FROM pair_row
WHERE site >= 100 OR tid NOT IN (SELECT tid FROM pair_reborn)
UNION ALL
SELECT r.*, coalesce(f.time, 0)
FROM (FROM pair_row WHERE site < 100 AND tid IN (SELECT tid FROM pair_reborn)) AS r
ASOF LEFT JOIN pair_reborn AS f ON r.tid = f.tid AND r.time >= f.time;

-- A START right before a STOP is a pair. What is left when these are taken out is nested, or has no
-- partner.
CREATE TEMP TABLE pair_step AS
SELECT begins, time, cpu, tid, site, key, whose, born, place, lead(time) OVER one AS to_ns,
    lead(cpu) OVER one AS to_cpu,
       lead(begins) OVER one AS begins_next, lag(begins) OVER one AS begins_before
FROM pair_placed WINDOW one AS (PARTITION BY site, whose, born ORDER BY place);
DROP VIEW pair_placed;
DROP TABLE pair_row;

-- Of those, how deep the stack of begun actions is at each: a START and its STOP have the same
-- depth, with none of it between.
CREATE TEMP TABLE pair_nested AS
WITH level AS (
    SELECT *, sum(CASE WHEN begins THEN 1 ELSE -1 END) OVER one::BIGINT + CASE WHEN begins THEN 0
        ELSE 1 END AS level
    FROM pair_step
    WHERE (begins AND coalesce(begins_next, true))
        OR (NOT begins AND NOT coalesce(begins_before, false))
    WINDOW one AS (PARTITION BY site, whose, born ORDER BY place ROWS UNBOUNDED PRECEDING)
)
SELECT begins, time, cpu, tid, site, key, lead(time) OVER one AS to_ns,
    lead(cpu) OVER one AS to_cpu,
       lead(begins) OVER one AS begins_next
FROM level WINDOW one AS (PARTITION BY site, whose, born, level ORDER BY place);

-- The logger's own cost: pairs with nothing in between.
CREATE TEMP TABLE pair_bare AS
WITH row AS (
    SELECT *, lead(time) OVER thread AS next, lead(begins) OVER thread AS begins_next
    FROM pair_empty WINDOW thread AS (PARTITION BY tid ORDER BY time, begins, serial)
)
SELECT NULL AS place, time AS from_ns, next AS to_ns FROM row WHERE begins AND NOT begins_next;
CREATE TEMP TABLE pair_own AS
SELECT to_ns - from_ns AS ns
FROM klogger.broken('pair_bare', ['START', 'STOP', 'STOP_ELSEWHERE', 'EMPTY_START', 'EMPTY_STOP'])
WHERE NOT broken;
DROP TABLE pair_bare;

-- Means are without the worst thousandth, as in the KLogger paper.
CREATE TEMP TABLE pair_cost AS
WITH most AS (SELECT quantile_disc(ns, 0.999) AS ns FROM pair_own)
SELECT count(*) AS pairs, avg(ns) FILTER (ns <= (SELECT ns FROM most)) AS mean,
       stddev_samp(ns) FILTER (ns <= (SELECT ns FROM most)) AS sd
FROM pair_own;

-- Not every log has names of functions.
SET VARIABLE pair_symbol = (
    SELECT CASE WHEN count(*) > 0 THEN 'SELECT DISTINCT key, key_symbol AS symbol FROM START WHERE '
                                       'key_symbol IS NOT NULL'
                ELSE 'SELECT 0::UBIGINT AS key, NULL::VARCHAR AS symbol WHERE false' END
    FROM information_schema.columns WHERE table_name = 'START' AND column_name = 'key_symbol');
-- What a key says, as text: the name of a system call, a softirq, a function.
CREATE TEMP TABLE pair_kind AS
WITH symbol AS (
    SELECT key, any_value(symbol) AS symbol FROM query(getvariable('pair_symbol')) GROUP BY key
)
SELECT k.site, k.key,
       CASE WHEN d.text IS NOT NULL THEN d.text WHEN k.site IN (1, 2, 200) THEN 'number ' || k.key
            WHEN k.site = 201 THEN 'IRQ ' || k.key
                WHEN k.site IN (3, 203) THEN coalesce(s.symbol, printf('0x%x', k.key))
            ELSE '' END AS kind
FROM (SELECT DISTINCT site, key FROM START WHERE site <> 100 AND site <> 199) AS k
LEFT JOIN symbol AS s USING (key)
LEFT JOIN klogger.decoding AS d
    ON d.value = k.key AND d.decoding = CASE k.site WHEN 1 THEN 'system_call'
        WHEN 200 THEN 'softirq' END;
CREATE TEMP TABLE pair_action AS
SELECT value AS site, text AS action FROM klogger.decoding WHERE decoding = 'action';

SET VARIABLE pair_mean = (SELECT coalesce(mean, 0) FROM pair_cost);
CREATE TEMP VIEW pair_joined AS
SELECT site, key, tid, cpu AS from_cpu, time AS from_ns, to_ns, to_cpu, NULL AS place FROM pair_step
WHERE begins AND NOT begins_next
UNION ALL
SELECT site, key, tid, cpu, time, to_ns, to_cpu, NULL FROM pair_nested
WHERE begins AND NOT begins_next;
CREATE TEMP TABLE pair AS
SELECT j.site, coalesce(a.action, 'action ' || j.site) AS action, j.key,
    coalesce(k.kind, '') AS kind, j.tid,
       j.from_ns, j.to_ns, j.from_cpu, j.to_cpu, j.to_ns - j.from_ns AS raw,
       j.to_ns - j.from_ns - getvariable('pair_mean') AS ns, j.broken AS torn
FROM klogger.broken('pair_joined', ['START', 'STOP', 'STOP_ELSEWHERE']) AS j
LEFT JOIN pair_kind AS k USING (site, key) LEFT JOIN pair_action AS a USING (site);

CREATE TEMP TABLE pair_lone AS
WITH counted AS (
    SELECT site, count(*) FILTER (begins) AS starts, count(*) FILTER (NOT begins) AS stops
    FROM pair_step GROUP BY site
), paired AS (
    SELECT site, count(*) AS pairs FROM pair GROUP BY site
)
SELECT site, coalesce(action, 'action ' || site) AS action, starts, stops,
    coalesce(pairs, 0) AS pairs,
       starts - coalesce(pairs, 0) AS no_stop, stops - coalesce(pairs, 0) AS no_start
FROM counted LEFT JOIN paired USING (site) LEFT JOIN pair_action USING (site);
DROP VIEW pair_joined;
DROP TABLE pair_step;
DROP TABLE pair_nested;

-- One row for each action, and what its times come to; q: minimum, 50, 90, 99, 99.9, 99.99 %,
-- maximum. A deviation with the own cost's in it is larger by that.
CREATE TEMP TABLE pair_quantile AS
SELECT site, quantile_disc(ns, [0, 0.5, 0.9, 0.99, 0.999, 0.9999, 1]) AS q FROM pair WHERE NOT torn
GROUP BY site;
CREATE TEMP TABLE pair_sum AS
SELECT site, any_value(action) AS action, count(*) AS pairs, sum(ns) AS total, avg(ns) AS mean,
       coalesce(stddev_samp(ns), 0) AS sd, avg(ns) FILTER (ns <= q[5]) AS trimmed,
       coalesce(stddev_samp(ns) FILTER (ns <= q[5]), 0) AS trimmed_sd,
       sqrt(trimmed_sd ^ 2 + coalesce((SELECT sd FROM pair_cost), 0) ^ 2) AS sd_with_own,
       any_value(q) AS q
FROM pair JOIN pair_quantile USING (site) WHERE NOT torn GROUP BY site;

CREATE TEMP VIEW pair_warning AS
SELECT 'The logger''s own cost is in all times: the log has no empty pairs. '
       '''klogger stopwatch'' makes them.' AS warning
WHERE (SELECT pairs FROM pair_cost) = 0 AND (SELECT count(*) FROM pair) > 0
UNION ALL
SELECT format('Left out, because events are missing between their START and their STOP: {:,} '
              'pairs.', count(*))
FROM pair WHERE torn HAVING count(*) > 0;
