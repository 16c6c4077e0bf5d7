-- SPDX-License-Identifier: GPL-2.0-only
-- handler: one row for each time that a handler of an interrupt ran.
--
--   cpu, level          where; 0: soft interrupt, 1: interrupt, 2: non-maskable. A higher one interrupts a lower one
--   class, name         timer, device, IPI, softirq, NMI, other; the device's name, or that of the vector
--   from_ns, to_ns      ns since the log's start
--   ns                  how long, without what logging took, as far as the log says how much that is
--   self_ns             without what interrupted it
--   inside              it interrupted another handler: its time is a part of that one's
--
-- Handlers of one kind do not interrupt each other. So the end of one belongs to its beginning if that is the latest event
-- of this kind on this CPU, and no events are missing in between. Else it is left out, and counted in handler_left_out.

CREATE TEMP TABLE handler_name AS
SELECT 1 AS level, 16 + irq::BIGINT AS kind, 'device' AS class, arg_min(name, time) AS name FROM IRQ_NAME GROUP BY irq
UNION ALL
SELECT 1, k, CASE k WHEN 0 THEN 'timer' WHEN 1 THEN 'IPI' WHEN 2 THEN 'IPI' WHEN 3 THEN 'IPI' ELSE 'other' END,
       interrupt_vector(k)
FROM range(16) AS r(k)
UNION ALL
SELECT 0, k, 'softirq', 'softirq ' || softirq(k) FROM range(16) AS r(k);

-- What logging adds to a handler from one of its events to the other; and what it adds to one that is interrupted, besides.
-- A non-maskable interrupt's time is the kernel's own, and its event comes after it.
CREATE TEMP MACRO handler_cost(level, kind) AS
    CASE WHEN level = 0 THEN cost_of('SOFT_IN') WHEN level = 2 THEN 0 WHEN kind < 16 THEN cost_of('VEC_IN')
         ELSE cost_of('IRQ_IN') END;
CREATE TEMP MACRO handler_cost_outside(level, kind) AS
    CASE WHEN level = 0 THEN cost_of('SOFT_OUT') WHEN level = 2 THEN cost_of('NMI') WHEN kind < 16 THEN cost_of('VEC_OUT')
         ELSE cost_of('IRQ_OUT') END;

CREATE TEMP TABLE handler_break AS
WITH missing AS (
    SELECT * FROM klogger.gap
    WHERE event IS NULL OR event IN ('IRQ_IN', 'IRQ_OUT', 'VEC_IN', 'VEC_OUT', 'SOFT_IN', 'SOFT_OUT')
), placed AS (
    SELECT cpu, from_ns, to_ns FROM missing WHERE cpu IS NOT NULL
    UNION ALL
    SELECT c.cpu, m.from_ns, m.to_ns
    FROM missing AS m, (SELECT DISTINCT cpu FROM VEC_IN UNION SELECT DISTINCT cpu FROM SOFT_IN) AS c WHERE m.cpu IS NULL
)
-- A LOST record has the time of the event that it stands before, but is not a part of it: hence the 1 ns.
SELECT cpu, from_ns AS time FROM placed UNION SELECT cpu, to_ns - 1 FROM placed;

-- Device's interrupts and vectors as one kind of numbers: vectors below 16, devices from there on.
CREATE TEMP VIEW handler_end AS
SELECT cpu, 1 AS level, 16 + irq::BIGINT AS kind, time FROM IRQ_OUT
UNION ALL SELECT cpu, 1, kind::BIGINT, time FROM VEC_OUT
UNION ALL SELECT cpu, 0, kind::BIGINT, time FROM SOFT_OUT;
CREATE TEMP VIEW handler_edge AS
SELECT cpu, 1 AS level, 16 + irq::BIGINT AS kind, time, true AS begins FROM IRQ_IN
UNION ALL SELECT cpu, 1, kind::BIGINT, time, true FROM VEC_IN
UNION ALL SELECT cpu, 0, kind::BIGINT, time, true FROM SOFT_IN
UNION ALL SELECT *, false FROM handler_end;
CREATE TEMP TABLE handler_pair AS
WITH latest AS (
    SELECT e.cpu, e.level, e.kind, e.time, b.time AS from_ns, b.begins
    FROM handler_end AS e ASOF LEFT JOIN handler_edge AS b
    ON e.cpu = b.cpu AND e.level = b.level AND e.kind = b.kind AND e.time > b.time
)
SELECT l.cpu, l.level, l.kind, l.from_ns, l.time AS to_ns, l.begins,
       l.begins AND coalesce(g.time < l.from_ns, true) AS whole
FROM latest AS l ASOF LEFT JOIN handler_break AS g ON l.cpu = g.cpu AND l.time > g.time;

-- Probes are attached, and taken away, one after the other: an end without a beginning is a loss only if it comes after the
-- first beginning of its kind, and before the last one.
CREATE TEMP TABLE handler_left_out AS
SELECT count(*) AS count
FROM handler_pair JOIN (
    SELECT level, kind, min(time) AS first, max(time) AS last FROM handler_edge WHERE begins GROUP BY level, kind
) USING (level, kind)
WHERE whole IS NOT true AND (coalesce(begins, false) OR to_ns BETWEEN first AND last);

CREATE TEMP TABLE handler_level AS
SELECT cpu, level, kind, from_ns, to_ns FROM handler_pair WHERE whole
UNION ALL
SELECT cpu, 2, 0, greatest(time - least(took, 4611686018427387904)::BIGINT, 0), time FROM NMI;

-- Each with the latest that began before it on a lower level: that one was interrupted if it ends later.
CREATE TEMP TABLE handler_nested AS
WITH hard AS (
    SELECT h.*, s.from_ns AS soft_ns, s.to_ns > h.from_ns AS meets, s.to_ns >= h.to_ns AS inside
    FROM (FROM handler_level WHERE level > 0) AS h
    ASOF LEFT JOIN (FROM handler_level WHERE level = 0) AS s ON h.cpu = s.cpu AND h.from_ns > s.from_ns
)
SELECT n.*, h.from_ns AS hard_ns, n.level = 2 AND coalesce(h.to_ns >= n.to_ns, false) AS inside_hard
FROM hard AS n
ASOF LEFT JOIN (FROM handler_level WHERE level = 1) AS h ON n.cpu = h.cpu AND n.from_ns > h.from_ns;
CREATE TEMP VIEW handler_taken AS
SELECT cpu, 0 AS level, soft_ns AS from_ns, sum(to_ns - n.from_ns + handler_cost_outside(level, kind))::BIGINT AS ns
FROM handler_nested AS n WHERE inside AND NOT inside_hard GROUP BY cpu, soft_ns
UNION ALL
SELECT cpu, 1, hard_ns, sum(to_ns - n.from_ns + handler_cost_outside(level, kind))::BIGINT FROM handler_nested AS n WHERE inside_hard GROUP BY cpu, hard_ns;

CREATE TEMP TABLE handler AS
WITH placed AS (
    SELECT cpu, level, kind, from_ns, to_ns, coalesce(inside, false) OR inside_hard AS inside FROM handler_nested
    UNION ALL
    SELECT cpu, level, kind, from_ns, to_ns, false FROM handler_level WHERE level = 0
)
SELECT p.cpu, p.level, CASE p.level WHEN 2 THEN 'NMI' ELSE coalesce(d.class, 'device') END AS class,
       CASE p.level WHEN 2 THEN 'NMI' ELSE coalesce(d.name, 'irq ' || (p.kind - 16)) END AS name,
       p.from_ns, p.to_ns, p.to_ns - p.from_ns - handler_cost(p.level, p.kind) AS ns,
       p.to_ns - p.from_ns - handler_cost(p.level, p.kind) - coalesce(t.ns, 0) AS self_ns, p.inside
FROM placed AS p LEFT JOIN handler_name AS d USING (level, kind)
LEFT JOIN handler_taken AS t ON p.cpu = t.cpu AND p.level = t.level AND p.from_ns = t.from_ns;

CREATE TEMP VIEW handler_warning AS
SELECT format('Left out, because their beginning or their end is not in the log: {:,} runs of handlers.', count) AS warning
FROM handler_left_out WHERE count > 0
UNION ALL
SELECT format('{:,} interrupts began in a soft interrupt and ended after it, which cannot be: their times are not exact.', count(*))
FROM handler_nested WHERE meets AND NOT inside HAVING count(*) > 0;
DROP TABLE handler_pair;

-- The nine names that take the most time have a colour of their own in pictures.
CREATE TEMP TABLE handler_shown AS
SELECT name, CASE WHEN rank <= 9 THEN name ELSE 'other' END AS shown, rank
FROM (SELECT name, row_number() OVER (ORDER BY sum(self_ns) DESC, name) AS rank FROM handler GROUP BY name);
