-- SPDX-License-Identifier: GPL-2.0-only
-- handler: one row for each time that a handler of an interrupt ran.
--
--   cpu, level          where; 0: soft interrupt, 1: interrupt, 2: non-maskable. A higher one
--                       interrupts a lower one
--   class, name         timer, device, IPI, softirq, NMI, other; the device's name, or that of the
--                       vector
--   from_ns, to_ns      ns since the log's start
--   ns                  how long, without what logging took, as far as the log says how much that
--                       is
--   self_ns             without what interrupted it
--   inside              it interrupted another handler: its time is a part of that one's
--
-- Handlers of one kind do not interrupt each other: they are pairs as klogger.pairs makes them, for
-- each kind and CPU. A run that may have events missing in it is left out, and counted in
-- handler_left_out.

CREATE TEMP TABLE handler_name AS
SELECT 1 AS level, 16 + irq::BIGINT AS kind, 'device' AS class, arg_min(name, time) AS name
FROM IRQ_NAME GROUP BY irq
UNION ALL
SELECT 1, k, CASE k WHEN 0 THEN 'timer' WHEN 1 THEN 'IPI' WHEN 2 THEN 'IPI' WHEN 3 THEN 'IPI'
    ELSE 'other' END,
       interrupt_vector(k)
FROM range(16) AS r(k)
UNION ALL
SELECT 0, k, 'softirq', 'softirq ' || softirq(k) FROM range(16) AS r(k);

-- What logging adds to a handler from one of its events to the other; and what it adds to one that
-- is interrupted, besides. A non-maskable interrupt's time is the kernel's own, and its event comes
-- after it.
CREATE TEMP MACRO handler_cost(level, kind) AS
    CASE WHEN level = 0 THEN cost_of('SOFT_IN') WHEN level = 2 THEN 0
        WHEN kind < 16 THEN cost_of('VEC_IN')
         ELSE cost_of('IRQ_IN') END;
CREATE TEMP MACRO handler_cost_outside(level, kind) AS
    CASE WHEN level = 0 THEN cost_of('SOFT_OUT') WHEN level = 2 THEN cost_of('NMI')
        WHEN kind < 16 THEN cost_of('VEC_OUT')
         ELSE cost_of('IRQ_OUT') END;

-- Device's interrupts and vectors as one kind of numbers: vectors below 16, devices from there on.
CREATE TEMP MACRO handler_key(cpu, level, kind) AS cpu::BIGINT * 17179869184 + level * 8589934592
    + kind + 2147483648;
CREATE TEMP VIEW handler_begin AS
SELECT handler_key(cpu, 1, 16 + irq::BIGINT) AS key, 16 + irq::BIGINT AS who, time, NULL AS begun
FROM IRQ_IN
UNION ALL SELECT handler_key(cpu, 1, kind::BIGINT), kind::BIGINT, time, NULL FROM VEC_IN
UNION ALL SELECT handler_key(cpu, 0, kind::BIGINT), kind::BIGINT, time, NULL FROM SOFT_IN;
CREATE TEMP VIEW handler_end AS
SELECT handler_key(cpu, 1, 16 + irq::BIGINT) AS key, 16 + irq::BIGINT AS who, time, NULL AS ended
FROM IRQ_OUT
UNION ALL SELECT handler_key(cpu, 1, kind::BIGINT), kind::BIGINT, time, NULL FROM VEC_OUT
UNION ALL SELECT handler_key(cpu, 0, kind::BIGINT), kind::BIGINT, time, NULL FROM SOFT_OUT;
CREATE TEMP TABLE handler_pair AS
SELECT (key - level * 8589934592 - kind - 2147483648) // 17179869184 AS place, level, kind, from_ns,
    to_ns, outside
FROM (SELECT *, ((key - who - 2147483648) // 8589934592 % 2)::BIGINT AS level, who AS kind
      FROM klogger.pairs('handler_begin', 'handler_end'));
CREATE TEMP TABLE handler_seen AS
SELECT * EXCLUDE (place), place::SMALLINT AS cpu
FROM klogger.broken('handler_pair',
    ['IRQ_IN', 'IRQ_OUT', 'VEC_IN', 'VEC_OUT', 'SOFT_IN', 'SOFT_OUT']);
DROP TABLE handler_pair;

-- Probes are attached, and taken away, one after the other: an end without a beginning is a loss
-- only if it comes after the first beginning of its kind, and before the last one; and so is a
-- beginning without an end. Both ends of one run may be there and not be joined: hence the greater
-- of two numbers.
CREATE TEMP TABLE handler_left_out AS
WITH known AS (
    SELECT level, kind, min(from_ns) AS first_begin, max(from_ns) AS last_begin,
        min(to_ns) AS first_end, max(to_ns) AS last_end
    FROM handler_seen GROUP BY level, kind
)
SELECT count(*) FILTER (from_ns IS NOT NULL AND to_ns IS NOT NULL AND broken)
       + greatest(count(*) FILTER (from_ns IS NULL AND to_ns BETWEEN first_begin AND last_begin),
                  count(*) FILTER (to_ns IS NULL
                      AND from_ns BETWEEN first_end AND last_end)) AS count
FROM handler_seen JOIN known USING (level, kind) WHERE broken OR NOT outside;

CREATE TEMP TABLE handler_level AS
SELECT cpu, level, kind, from_ns, to_ns FROM handler_seen
WHERE from_ns IS NOT NULL AND to_ns IS NOT NULL AND NOT broken
UNION ALL
SELECT cpu, 2, 0, greatest(time - least(took, 4611686018427387904)::BIGINT, 0), time FROM NMI;

-- Each with the latest that began before it on a lower level: that one was interrupted if it ends
-- later.
CREATE TEMP TABLE handler_nested AS
WITH hard AS (
    SELECT h.*, s.from_ns AS soft_ns, s.to_ns > h.from_ns AS meets, s.to_ns >= h.to_ns AS inside
    FROM (FROM handler_level WHERE level > 0) AS h
    ASOF LEFT JOIN (FROM handler_level WHERE level = 0) AS s ON h.cpu = s.cpu
        AND h.from_ns > s.from_ns
)
SELECT n.*, h.from_ns AS hard_ns, n.level = 2 AND coalesce(h.to_ns >= n.to_ns, false) AS inside_hard
FROM hard AS n
ASOF LEFT JOIN (FROM handler_level WHERE level = 1) AS h ON n.cpu = h.cpu AND n.from_ns > h.from_ns;
CREATE TEMP VIEW handler_taken AS
SELECT cpu, 0 AS level, soft_ns AS from_ns,
    sum(to_ns - n.from_ns + handler_cost_outside(level, kind))::BIGINT AS ns
FROM handler_nested AS n WHERE inside AND NOT inside_hard GROUP BY cpu, soft_ns
UNION ALL
SELECT cpu, 1, hard_ns, sum(to_ns - n.from_ns + handler_cost_outside(level, kind))::BIGINT
FROM handler_nested AS n WHERE inside_hard GROUP BY cpu, hard_ns;

CREATE TEMP TABLE handler AS
WITH placed AS (
    SELECT cpu, level, kind, from_ns, to_ns, coalesce(inside, false) OR inside_hard AS inside
    FROM handler_nested
    UNION ALL
    SELECT cpu, level, kind, from_ns, to_ns, false FROM handler_level WHERE level = 0
)
SELECT p.cpu, p.level, CASE p.level WHEN 2 THEN 'NMI' ELSE coalesce(d.class, 'device') END AS class,
       CASE p.level WHEN 2 THEN 'NMI' ELSE coalesce(d.name, 'irq ' || (p.kind - 16)) END AS name,
       p.from_ns, p.to_ns, p.to_ns - p.from_ns - handler_cost(p.level, p.kind) AS ns,
       -- Where a clock was wrong, two may have one beginning; what interrupted one of them does not
       -- outlast the other.
       p.to_ns - p.from_ns - handler_cost(p.level, p.kind)
           - least(coalesce(t.ns, 0), p.to_ns - p.from_ns) AS self_ns, p.inside
FROM placed AS p LEFT JOIN handler_name AS d USING (level, kind)
LEFT JOIN handler_taken AS t ON p.cpu = t.cpu AND p.level = t.level AND p.from_ns = t.from_ns;

CREATE TEMP VIEW handler_warning AS
SELECT format('Left out, because their beginning or their end is not in the log: {:,} runs of '
              'handlers.', count) AS warning
FROM handler_left_out WHERE count > 0
UNION ALL
SELECT format('{:,} interrupts began in a soft interrupt and ended after it, which cannot be: '
              'their times are not exact.', count(*))
FROM handler_nested WHERE meets AND NOT inside HAVING count(*) > 0;
DROP TABLE handler_seen;

-- The nine names that take the most time have a colour of their own in pictures.
CREATE TEMP TABLE handler_shown AS
SELECT name, CASE WHEN rank <= 9 THEN name ELSE 'other' END AS shown, rank
FROM (SELECT name, row_number() OVER (ORDER BY sum(self_ns) DESC, name) AS rank FROM handler
    GROUP BY name);
