-- SPDX-License-Identifier: GPL-2.0-only
-- title: Convoys
-- question: When do three or more threads wait for one lock at the same time?
-- order: 40
-- events: WAIT, WAITED
-- include: _futex
-- picture: bars x=lasted y=lock
-- combine: sum
-- column lock: its name and process; without a name process and address
-- column convoys [count]: times that three or more threads waited
-- column lasted [ns, bar]: all of these times
-- column longest [ns, max]: the longest
-- column most [count, max]: threads that waited at the same time
-- column first [ns, apart]: when the first began
-- note: Only locks that have a holder: a barrier or a condition that many wait for is no convoy.
-- empty: at no time did three threads wait for one lock

CREATE TEMP TABLE convoys_depth AS
SELECT tgid, lock, moment, sum(step) OVER (PARTITION BY tgid, lock ORDER BY moment, step
        ROWS UNBOUNDED PRECEDING) AS depth,
    lead(moment) OVER (PARTITION BY tgid, lock ORDER BY moment, step) AS next
FROM (
    SELECT tgid, lock, from_ns AS moment, 1 AS step FROM futex_wait
    WHERE holder > 0 AND NOT broken
    UNION ALL SELECT tgid, lock, to_ns, -1 FROM futex_wait
    WHERE holder > 0 AND NOT broken AND to_ns IS NOT NULL
);
CREATE TEMP TABLE convoys AS
SELECT tgid, lock, part, min(moment) AS from_ns, max(next) - min(moment) AS ns, max(depth) AS depth
FROM (
    SELECT *, count(*) FILTER (depth < 3) OVER (PARTITION BY tgid, lock ORDER BY moment, depth
        ROWS UNBOUNDED PRECEDING) AS part
    FROM convoys_depth
) WHERE depth >= 3 AND next > moment GROUP BY tgid, lock, part;
CREATE TEMP TABLE convoys_of AS
SELECT futex_name(tgid, lock, max(from_ns)) AS lock, count(*) AS convoys, sum(ns)::BIGINT AS lasted,
    max(ns) AS longest, max(depth)::BIGINT AS most, min(from_ns) AS first
FROM convoys GROUP BY tgid, lock;

-- table
FROM convoys_of ORDER BY lasted DESC, lock;

-- picture
SELECT lock, lasted FROM convoys_of ORDER BY lasted DESC, lock LIMIT 15;

-- finding
SELECT format('For {} of the time three or more threads waited for {}.',
    duration(max(lasted)), arg_max(lock, lasted)),
    least(max(lasted) / greatest(any_value(to_ns), 1), 1) AS weight
FROM convoys_of, klogger.recording HAVING count(*) > 0;
