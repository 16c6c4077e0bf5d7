-- SPDX-License-Identifier: GPL-2.0-only
-- place: one row for each time that a thread could run, and on which CPU it then was, without idle.
--
--   pid, cpu          who, and on the queue of which CPU: it ran there, or waited to run there
--   from_ns, to_ns    ns since the log's start
--
-- A thread is there from ADD_TO_RUNQ until REMOVE_FROM_RUNQ, and MIGRATE takes it elsewhere. The
-- switches in between are needed only where events are missing: it is not known then where a
-- thread is, until it is seen again.

CREATE TEMP TABLE place_gap AS
SELECT from_ns, until AS to_ns
FROM klogger.missing(['SCHEDIN', 'SCHEDOUT', 'ADD_TO_RUNQ', 'REMOVE_FROM_RUNQ', 'MIGRATE'])
WHERE place = -2;
SET VARIABLE place_gaps = (SELECT count(*) FROM place_gap);
CREATE TEMP TABLE place_step AS
SELECT pid, time, runq::INTEGER AS cpu, 1 AS able FROM ADD_TO_RUNQ
UNION ALL SELECT pid, time, cpu, 0 FROM REMOVE_FROM_RUNQ
UNION ALL SELECT pid, time, to_cpu, NULL FROM MIGRATE
UNION ALL SELECT pid, time, cpu, 1 FROM SCHEDIN WHERE pid <> 0 AND getvariable('place_gaps') > 0
UNION ALL SELECT pid, time, cpu, 1 FROM SCHEDOUT
WHERE pid <> 0 AND state = 0 AND getvariable('place_gaps') > 0;

-- A thread that is switched before all this could run when the log began. If it lost a CPU first,
-- it had that from the log's start, or its own, on. In a flight recording nothing is known of that
-- time.
CREATE TEMP TABLE place_first AS
WITH begun AS (SELECT pid, min(time) AS time, arg_min(cpu, time) AS cpu FROM SCHEDIN WHERE pid <> 0
    GROUP BY pid),
     ended AS (SELECT pid, min(time) AS time, arg_min(cpu, time) AS cpu FROM SCHEDOUT WHERE pid <> 0
         GROUP BY pid),
     stepped AS (SELECT pid, min(time) AS time FROM place_step WHERE able IS NOT NULL GROUP BY pid),
     born AS (SELECT pid, min(from_ns) AS time FROM klogger.process GROUP BY pid)
SELECT pid, CASE WHEN coalesce(e.time < b.time, true) THEN greatest(coalesce(n.time, 0), 0)
    ELSE b.time END AS time,
       CASE WHEN coalesce(e.time < b.time, true) THEN e.cpu ELSE b.cpu END AS cpu, 1 AS able
FROM ended AS e FULL JOIN begun AS b USING (pid) LEFT JOIN stepped AS s USING (pid)
LEFT JOIN born AS n USING (pid)
WHERE coalesce(least(b.time, e.time) <= s.time, true)
    AND NOT (SELECT overwrite FROM klogger.recording);

-- A thread that is moved while it sleeps (able 0) is still nowhere. What changes nothing is dropped
-- at once, unless there is an end of a gap in between (another era). Most logs have no gap; they
-- are spared the join.
CREATE TEMP TABLE place AS
WITH known AS (
    SELECT pid, time, cpu, last_value(able IGNORE NULLS) OVER (PARTITION BY pid
        ORDER BY time ROWS UNBOUNDED PRECEDING) AS able
    FROM (FROM place_step UNION ALL FROM place_first)
), placed AS (
    SELECT pid, time, CASE WHEN able = 1 THEN cpu END AS cpu, NULL AS era FROM known
    WHERE getvariable('place_gaps') = 0
    UNION ALL
    SELECT k.pid, k.time, CASE WHEN able = 1 THEN cpu END, g.time
    FROM (FROM known WHERE getvariable('place_gaps') > 0) AS k
    ASOF LEFT JOIN (SELECT from_ns AS time FROM place_gap UNION SELECT to_ns FROM place_gap) AS g
        ON k.time >= g.time
), changed AS (
    SELECT pid, time, cpu FROM placed
    WINDOW w AS (PARTITION BY pid ORDER BY time)
    QUALIFY cpu IS DISTINCT FROM lag(cpu) OVER w OR era IS DISTINCT FROM lag(era) OVER w
), stretched AS (
    SELECT pid, cpu, time AS from_ns, lead(time) OVER (PARTITION BY pid ORDER BY time) AS to_ns
    FROM changed
)
SELECT pid, cpu, s.from_ns, coalesce(s.to_ns, CASE WHEN r.finished THEN r.to_ns
    ELSE s.from_ns END) AS to_ns
FROM stretched AS s, klogger.recording AS r WHERE cpu IS NOT NULL;

-- A gap may have events in it (a rate limit): what they say of a place holds at that moment, and no
-- longer.
UPDATE place SET to_ns = greatest(g.from_ns, place.from_ns)
FROM (SELECT p.rowid AS id, min(g.from_ns) AS from_ns FROM place AS p JOIN place_gap AS g
        ON g.to_ns > p.from_ns AND g.from_ns < p.to_ns GROUP BY id) AS g
WHERE place.rowid = g.id;
DELETE FROM place WHERE to_ns <= from_ns;
CREATE TEMP VIEW place_warning AS
SELECT format('Events are missing in {:,} {}: after each of them, a thread is not counted until it '
              'is seen again.', count(*),
              CASE count(*) WHEN 1 THEN 'place' ELSE 'places' END) AS warning
FROM place_gap HAVING count(*) > 0;
DROP TABLE place_step;
DROP TABLE place_first;
