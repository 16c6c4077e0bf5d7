-- SPDX-License-Identifier: GPL-2.0-only
-- title: Locks one by one
-- question: Which single locks cost the most waiting?
-- order: 50
-- events: LOCK_BEGIN, LOCK_END
-- include: _waits
-- column lock: lock; its address
-- column class: class
-- column kind: kind
-- column waits [count]: waits
-- column per_second [per_s]: waits in a second
-- column waited [ns, bar]: all waits together
-- column p50 [ns]: half of the waits are shorter
-- column p99 [ns]: 99 of 100 are shorter
-- column max [ns]: the longest
-- column at_once [count]: the most waiters at the same time
-- column interrupts [share]: waits in softirqs and interrupts; as far as their stacks show it
-- note: Addresses are used again: what is freed and allocated anew counts as one lock.
-- empty: no thread had to wait for a lock while the log was recorded

CREATE TEMP TABLE league AS
SELECT lock, class, kind, count(*) AS waits, sum(ns) AS waited, quantile_disc(ns, [0.5, 0.99]) AS p,
       max(ns) AS max, count(*) FILTER (interrupt) / count(*) AS interrupts
FROM locking GROUP BY lock, class, kind ORDER BY waited DESC, lock, class, kind LIMIT 30;

-- How many wait after each beginning and each end. One that ends where another begins is gone
-- first.
CREATE TEMP TABLE league_at_once AS
WITH step AS (
    SELECT lock, class, kind, from_ns AS time, 1 AS change FROM locking SEMI
    JOIN league USING (lock, class, kind)
    UNION ALL
    SELECT lock, class, kind, to_ns, -1 FROM locking SEMI JOIN league USING (lock, class, kind)
), level AS (
    SELECT lock, class, kind, sum(change) OVER (PARTITION BY lock, class, kind
        ORDER BY time, change ROWS UNBOUNDED PRECEDING) AS waiters
    FROM step
)
SELECT lock, class, kind, max(waiters) AS at_once FROM level GROUP BY ALL;

-- table
SELECT printf('%x', l.lock) AS lock, class, kind, waits,
    waits * 1e9 / greatest(s.ns, 1) AS per_second, waited,
       p[1] AS p50, p[2] AS p99, max, at_once::BIGINT AS at_once, interrupts
FROM league AS l JOIN league_at_once USING (lock, class, kind), locking_span AS s
ORDER BY waited DESC, lock, class, kind;

-- finding
SELECT format('One lock alone, {} of class {} ({}), has {:.0f} % of all waiting; up to {} waited '
              'at once.',
              printf('%x', l.lock), class, kind, 100 * waited / t.ns, at_once) AS finding,
       least(waited / greatest(at_once * s.ns, 1), 1) AS weight
FROM league AS l JOIN league_at_once USING (lock, class, kind),
    (SELECT sum(ns) AS ns FROM locking) AS t, locking_span AS s
WHERE waited > 0.5 * t.ns ORDER BY waited DESC LIMIT 1;

-- warning
FROM locking_warning;
