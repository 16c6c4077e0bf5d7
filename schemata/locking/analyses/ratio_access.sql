-- SPDX-License-Identifier: GPL-2.0-only
-- title: Contended acquisitions
-- question: How much more often is the most wanted class of locks waited for than the next one?
-- order: 60
-- events: LOCK_BEGIN, LOCK_END
-- include: _waits
-- picture: bars x=waits y=class
-- combine: sum
-- column class: class of spin locks and rwlocks
-- column waits [count, bar]: acquisitions that had to wait
-- column per_second [per_s, waits/seconds]: in a second
-- column ratio [count, apart]: how many times as many as the next class has
-- note: The KLogger paper found the lock of the network card taken almost three times as often as
--     the next one. It counted all acquisitions; these are the contended ones.
-- empty: no thread had to wait for a spin lock or an rwlock while the log was recorded

CREATE TEMP TABLE ratio_access AS
SELECT class, count(*) AS waits FROM locking WHERE busy GROUP BY class;

-- table
SELECT class, waits, waits * 1e9 / greatest(s.ns, 1) AS per_second,
    waits / lead(waits) OVER (ORDER BY waits DESC, class) AS ratio
FROM ratio_access, locking_span AS s ORDER BY waits DESC, class;

-- finding
SELECT format('Spin locks of class {} are waited for {:.1f} times as often as those of {}, the '
              'next.', class, waits / next_waits, next) AS finding
FROM (SELECT class, waits, lead(waits) OVER w AS next_waits, lead(class) OVER w AS next
    FROM ratio_access WINDOW w AS (ORDER BY waits DESC, class))
WHERE next IS NOT NULL ORDER BY waits DESC, class LIMIT 1;

-- warning
FROM locking_warning;
