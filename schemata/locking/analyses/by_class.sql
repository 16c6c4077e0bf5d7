-- SPDX-License-Identifier: GPL-2.0-only
-- title: Spinning by class of lock
-- question: Which classes of locks are spun for?
-- order: 40
-- events: LOCK_BEGIN, LOCK_END
-- include: _waits
-- picture: stacked x=spinning y=class colour=kind
-- combine: sum
-- column class: class; what the lock protects, told from the functions that wanted it
-- column kind: kind of lock
-- column waits [count]: waits
-- column spinning [ns]: time spent spinning
-- column share [share, bar, spinning/*]: its part of all spinning
-- column caller: the function that wanted the lock, in most of the waits
-- note: The class is that of the first function of the kernel's stack that stands in a table of
--     this schema (locking_class in _waits.sql). What no function there names is called other.
-- empty: no thread spun for a lock while the log was recorded

CREATE TEMP TABLE by_class AS
SELECT class, kind, count(*) AS waits, sum(spin_ns) AS spinning,
    mode(caller ORDER BY caller) AS caller,
       sum(sum(spin_ns)) OVER (PARTITION BY class) AS of_class
FROM locking WHERE spin_ns > 0 GROUP BY class, kind;

-- table
SELECT class, kind, waits, spinning, spinning / (SELECT sum(spinning) FROM by_class) AS share,
    caller
FROM by_class ORDER BY spinning DESC, class, kind;

-- picture
SELECT class, kind, spinning FROM by_class
WHERE class IN (SELECT class FROM by_class GROUP BY class, of_class ORDER BY of_class DESC, class
    LIMIT 12)
ORDER BY of_class DESC, class, kind;

-- finding
SELECT format('Most of the spinning is for: {}.',
    string_agg(format('{} ({:.0f} %)', class, 100 * c.ns / total), ', '
    ORDER BY c.ns DESC, class)) AS finding,
       least(any_value(total) / greatest(any_value(s.cpu_ns), 1), 1) AS weight
FROM (SELECT class, sum(spinning) AS ns, sum(sum(spinning)) OVER () AS total FROM by_class
    GROUP BY class ORDER BY ns DESC, class LIMIT 4) AS c,
     locking_span AS s
HAVING count(*) > 0;

-- warning
FROM locking_warning;
