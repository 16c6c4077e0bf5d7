-- SPDX-License-Identifier: GPL-2.0-only
-- title: Who ends waits
-- question: Which threads and interrupts end the waits of which programs?
-- order: 20
-- events: BLOCKED, WOKEN, BACK
-- include: _waits
-- picture: matrix x=waker y=program size=total
-- combine: sum
-- column program: program that waited
-- column waker: what woke it: a program, or a kind of interrupt
-- column times [count]: waits
-- column total [ns, bar]: time that these waits took
-- column p50 [ns, 0.5 of each]: half of the waits are shorter
-- column max [ns, max]: the longest
-- empty: no thread in scope waited while the log was recorded

CREATE TEMP VIEW ended_by_seen AS
SELECT pid, time, woken_ns - from_ns AS ns, waker, source FROM wait;
CREATE TEMP TABLE ended_by AS
SELECT program, CASE source WHEN 0 THEN comm(waker, time) ELSE wake_source(source) END AS waker, ns
FROM klogger.with_program('ended_by_seen');

-- table
SELECT program, waker, count(*) AS times, sum(ns)::BIGINT AS total, quantile_disc(ns, 0.5) AS p50,
    max(ns) AS max
FROM ended_by GROUP BY program, waker ORDER BY total DESC, program, waker;

-- picture
WITH most AS (
    SELECT program, row_number() OVER (ORDER BY sum(ns) DESC, program) AS rank FROM ended_by
    GROUP BY program
), others AS (
    SELECT waker, row_number() OVER (ORDER BY sum(ns) DESC, waker) AS place FROM ended_by
    GROUP BY waker
)
SELECT waker, program, sum(ns)::BIGINT AS total
FROM ended_by JOIN most USING (program) JOIN others USING (waker) WHERE rank <= 14 AND place <= 14
GROUP BY ALL ORDER BY min(rank), min(place);

-- finding
SELECT format('{} ended {:.0f} % of the time that {} waited.', waker, 100 * share, program),
    share * part AS weight
FROM (
    SELECT program, waker, sum(ns) / sum(sum(ns)) OVER (PARTITION BY program) AS share,
        sum(sum(ns)) OVER (PARTITION BY program) / sum(sum(ns)) OVER () AS part
    FROM ended_by GROUP BY program, waker
) WHERE share > 0.5 QUALIFY row_number() OVER (ORDER BY share * part DESC, program, waker) = 1;

-- histogram
SELECT program, waker, klogger.histogram_of(ns) AS each FROM ended_by GROUP BY program, waker;
