-- SPDX-License-Identifier: GPL-2.0-only
-- title: The worst lock and the rest
-- question: Is the spinning about one lock, or about many?
-- order: 30
-- events: LOCK_BEGIN, LOCK_END
-- include: _waits
-- picture: histogram x=from_ns x2=to_ns y=share colour=lock
-- combine: sum
-- column lock: lock; the class with the most spinning, and all others together
-- column spinning [ns]: time spent spinning, for locks of all kinds
-- column share [share, bar, apart]: share of the CPU time in this part of the recording
-- column part [share, spinning/*]: its part of all spinning
-- column from_ns [ns]: time since the beginning of the recording
-- column to_ns [ns]: end of the part
-- note: The KLogger paper's Figure 3 shows the Big Kernel Lock against all others. It left Linux in
--     2.6.39.
-- empty: no thread spun for a lock while the log was recorded

CREATE TEMP TABLE top_vs_rest AS
WITH total AS (SELECT class, sum(spin_ns) AS ns FROM locking GROUP BY class HAVING sum(spin_ns) > 0)
SELECT class, ns, row_number() OVER (ORDER BY ns DESC, class) AS rank FROM total;

CREATE TEMP MACRO top_vs_rest_name(n) AS
    CASE WHEN n = 1 THEN (SELECT class FROM top_vs_rest WHERE rank = 1) ELSE 'all others' END;

-- table
SELECT top_vs_rest_name(rank) AS lock, sum(t.ns) AS spinning,
    sum(t.ns) / greatest(any_value(s.cpu_ns), 1) AS share,
       sum(t.ns) / (SELECT sum(ns) FROM top_vs_rest) AS part
FROM top_vs_rest AS t, locking_span AS s GROUP BY lock ORDER BY min(rank);

-- picture
-- Forty parts of the recording. A wait counts in the part in which it began.
WITH bin AS (
    SELECT least((l.from_ns * 40 // greatest(s.ns, 1))::INTEGER, 39) AS n,
        top_vs_rest_name(t.rank) AS lock, sum(l.spin_ns) AS ns,
           min(t.rank) AS rank
    FROM locking AS l JOIN top_vs_rest AS t USING (class), locking_span AS s GROUP BY 1, 2
)
SELECT (n * s.ns / 40)::BIGINT AS from_ns, ((n + 1) * s.ns / 40)::BIGINT AS to_ns,
    bin.ns * 40 / greatest(s.cpu_ns, 1) AS share, lock
FROM bin, locking_span AS s ORDER BY rank, n;

-- finding
SELECT format('{:.0f} % of the time spent spinning is for one class of locks: {}.',
    100 * t.ns / (SELECT sum(ns) FROM top_vs_rest), class) AS finding,
       least(t.ns / greatest(s.cpu_ns, 1), 1) AS weight
FROM top_vs_rest AS t, locking_span AS s
WHERE rank = 1 AND t.ns > 0.5 * (SELECT sum(ns) FROM top_vs_rest);

-- warning
FROM locking_warning;
