-- SPDX-License-Identifier: GPL-2.0-only
-- title: Waits for locks
-- question: For which locks of the kernel do threads wait, and for how long?
-- order: 10
-- events: LOCK_BEGIN, LOCK_END
-- include: _waits
-- picture: bars x=waited y=lock
-- column lock: lock; what it protects, and its kind
-- column waits [count]: waits
-- column waited [ns]: all waits together
-- column share [share, bar]: the part of the recorded time in which a thread waited
-- column spinning [share]: the part of the waiting that was spinning, with a CPU, and not asleep
-- column p50 [ns]: half of the waits are shorter
-- column p99 [ns]: 99 of 100 are shorter
-- column max [ns]: the longest
-- column caller: who waits; the function with the most waiting, and its part of it
-- column open [count]: waits that had not ended when the log did; they count up to its end
-- note: Only waits are logged. How often a lock was taken without waiting is not known.
-- note: A mutex or an rwsem is spun for first, while its owner runs. Of an rwsem that is not seen.
-- empty: no thread had to wait for a lock while the log was recorded

-- Time in which at least one waited, by lock: runs of waits that touch, each from its beginning to
-- its latest end.
CREATE TEMP TABLE waits_covered AS
WITH ordered AS (
    SELECT class, kind, from_ns, to_ns,
           max(to_ns) OVER (PARTITION BY class, kind
               ORDER BY from_ns, to_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
    FROM locking
)
SELECT class, kind, sum(greatest(to_ns - greatest(from_ns, coalesce(before, from_ns)), 0)) AS ns
FROM ordered GROUP BY class, kind;

CREATE TEMP TABLE waits_caller AS
SELECT class, kind, arg_max(caller, ns) AS caller, max(ns) / greatest(sum(ns), 1) AS part
FROM (SELECT class, kind, caller, sum(ns) AS ns FROM locking GROUP BY ALL) GROUP BY class, kind;

CREATE TEMP TABLE waits AS
SELECT class, kind, class || ' (' || kind || ')' AS lock, l.waits, l.waited,
    c.ns / greatest(s.ns, 1) AS share,
       l.spin / greatest(l.waited, 1) AS spinning, l.spin, l.p[1] AS p50, l.p[2] AS p99, l.max,
       l.open, w.caller, w.part, l.longest
FROM (
    SELECT class, kind, count(*) AS waits, sum(ns) AS waited, sum(spin_ns) AS spin,
        quantile_disc(ns, [0.5, 0.99]) AS p,
           max(ns) AS max, count(*) FILTER (open) AS open, arg_max(from_ns, ns) AS longest
    FROM locking GROUP BY class, kind
) AS l JOIN waits_covered AS c USING (class, kind)
    JOIN waits_caller AS w USING (class, kind), locking_span AS s;

-- table
SELECT lock, waits, waited, share, spinning, p50, p99, max,
    format('{} {:.0f} %', caller, 100 * part) AS caller, open
FROM waits ORDER BY share DESC, lock;

-- picture
SELECT lock, waited FROM waits ORDER BY waited DESC, lock LIMIT 15;

-- finding
SELECT format('Threads waited for the lock of class {} in {:.3g} % of the time: {:,} waits, {} '
              'together, the longest {}. '
              || '{:.0f} % of it from {}.',
              lock, 100 * share, waits, duration(waited), duration(max), 100 * part,
              caller) AS finding,
       least(share, 1) AS weight
FROM (SELECT *, row_number() OVER (ORDER BY share DESC, lock) AS rank FROM waits)
WHERE rank = 1 OR rank <= 3 AND share >= 0.001 ORDER BY rank;

-- warning
FROM locking_warning;
