-- SPDX-License-Identifier: GPL-2.0-only
-- title: What timers waited for
-- question: Which interrupts kept the latest high-resolution timers from firing?
-- order: 16
-- events: HRTIMER_FIRED, HRTIMER_VAIN, WHEEL_FIRED, WHEEL_VAIN, WHEEL_CLOCK, IRQ_NAME, IRQ_IN,
--     IRQ_OUT, VEC_IN, VEC_OUT, SOFT_IN, SOFT_OUT, NMI
-- include: _timers
-- include: ../../interrupt/analyses/_handler
-- picture: stacked x=ns y=which colour=what
-- column at [ns]: when it fired, from the log's start
-- column cpu: where
-- column owner: the program that armed it
-- column kind: what the timer is for
-- column beyond [ns, bar]: so much later than it was allowed it fired
-- column other [ns]: of these, handlers of other interrupts, and soft interrupts
-- column own [ns]: of these, the timer's interrupt, from its beginning until this timer's turn; 0
--     if it fired outside of one
-- column none [ns]: of these, no handler ran: the device was late, or interrupts were off, or the
--     hypervisor had the CPU
-- column handlers: other handlers that ran meanwhile
-- column which: when, where and whose
-- column what: what ran
-- column ns [ns]: time
-- note: The 30 latest timers of the log. Those of the wheel are left out: they run in a soft
--     interrupt, which the schema causes follows.
-- empty: no high-resolution timer fired later than it was allowed to

CREATE TEMP TABLE timer_held_worst AS
SELECT time, cpu, timer, owner, kind, beyond, time - beyond AS due FROM timer_fire
WHERE beyond > 0 AND NOT wheel ORDER BY beyond DESC, time, cpu, timer LIMIT 30;
-- A timer's own interrupt has not ended when it fires; a handler that began before and has no end
-- is not in the table, so the last beginning is looked for in the events. One that had ended by
-- then is not the timer's: it is among the handlers.
CREATE TEMP TABLE timer_held_own AS
WITH edge AS (
    SELECT cpu, time AS begun, NULL AS ended FROM VEC_IN WHERE kind = 0
    UNION ALL SELECT cpu, NULL, time FROM VEC_OUT WHERE kind = 0
), last AS (
    SELECT w.time, w.cpu, w.timer, w.due, max(e.begun) AS begun,
        max(e.ended) FILTER (e.ended < w.time) AS ended
    FROM timer_held_worst AS w LEFT JOIN edge AS e
        ON e.cpu = w.cpu AND coalesce(e.begun, e.ended) BETWEEN w.due - 1000000 AND w.time
    GROUP BY w.time, w.cpu, w.timer, w.due
), own AS (
    SELECT *, begun IS NOT NULL AND coalesce(ended <= begun, true) AS inside FROM last
)
SELECT time, cpu, timer, inside,
    CASE WHEN inside THEN greatest(begun, due) ELSE time END AS since,
    CASE WHEN inside THEN time - greatest(begun, due) ELSE 0 END AS own
FROM own;
CREATE TEMP TABLE timer_held_part AS
SELECT w.time, w.cpu, w.timer, h.name,
    sum(greatest(least(h.to_ns, o.since) - greatest(h.from_ns, w.due),
        0))::BIGINT AS ns
FROM timer_held_worst AS w JOIN timer_held_own AS o USING (time, cpu, timer)
JOIN handler AS h ON h.cpu = w.cpu AND NOT h.inside
    AND h.from_ns < o.since AND h.to_ns > w.due
GROUP BY ALL HAVING ns > 0;
CREATE TEMP TABLE timer_held AS
SELECT w.time, w.cpu, w.owner, w.kind, w.beyond,
    least(coalesce(p.ns, 0), w.beyond - o.own) AS other, o.own, p.handlers
FROM timer_held_worst AS w JOIN timer_held_own AS o USING (time, cpu, timer)
LEFT JOIN (
    SELECT time, cpu, timer, sum(ns)::BIGINT AS ns,
        string_agg(format('{} {}', name, duration(ns)), ', ' ORDER BY ns DESC, name) AS handlers
    FROM timer_held_part GROUP BY time, cpu, timer
) AS p USING (time, cpu, timer);

-- table
SELECT time AS at, cpu, owner, kind, beyond, other, own, greatest(beyond - other - own, 0) AS none,
    coalesce(handlers, '') AS handlers
FROM timer_held ORDER BY beyond DESC, time, cpu;

-- picture
SELECT format('{} CPU {} {}', duration(time), cpu, owner) AS which, u.what, u.ns FROM (
    SELECT time, cpu, owner, beyond, unnest([{'what': 'no handler', 'ns': beyond - other - own},
        {'what': 'other handlers', 'ns': other}, {'what': 'its own interrupt', 'ns': own}]) AS u
    FROM timer_held
) WHERE u.ns > 0 ORDER BY beyond DESC, time, cpu, u.what;

-- finding
SELECT format('Of the time by which the latest {:,} high-resolution timers were late, {:.0f} % '
              'went to other handlers, and in {:.0f} % none ran: the device was late, interrupts '
              'were off, or the hypervisor had the CPU.', count(*), 100 * sum(other) / sum(beyond),
    100 * sum(greatest(beyond - other - own, 0)) / sum(beyond))
FROM timer_held HAVING count(*) > 0;

-- warning
FROM timer_warning
UNION ALL FROM handler_warning
UNION ALL
SELECT format('{:,} of these timers fired when no timer interrupt was running: in a soft '
              'interrupt, or its beginning is not in the log.', count(*))
FROM timer_held_own WHERE NOT inside HAVING count(*) > 0;
