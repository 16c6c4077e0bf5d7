-- SPDX-License-Identifier: GPL-2.0-only
-- title: Waits for space in the log
-- question: Which programs slept because the log was full, in which transactions, and how long?
-- order: 10
-- events: TRANSACTION, LOG_SLEEP, LOG_WOKEN
-- include: _xfs
-- picture: stacked x=ns y=program colour=type
-- combine: sum
-- column program: program
-- column type: type of the transaction; of several that reserve the same space the first
-- column transactions [count]: that began
-- column sleeps [count]: times it slept for space
-- column slept [ns, bar, less]: time asleep until there was space
-- column p50 [ns, 0.5 of each]: half of these sleeps took no longer
-- column max [ns, max]: the longest
-- column unit [bytes, max]: space that one such transaction reserves
-- column used [share, of sleeps]: part of the log between its tail and its head, on average at
--     these sleeps
-- column reserved [share, of sleeps]: part that was reserved for transactions under way
-- column ns [ns]: time asleep until there was space
-- note: Used and reserved are read without a lock: estimates, and each is of one moment.
-- note: Transactions need the parameter 'transactions' (it is on unless it was switched off).
-- empty: no transaction began, and nobody slept for space in the log

CREATE TEMP TABLE log_space_slept AS
SELECT *, pid AS who, from_ns AS time FROM xfs_sleep WHERE ns IS NOT NULL;
CREATE TEMP TABLE log_space AS
WITH slept AS (
    SELECT program, coalesce(kind, 0) AS kind, count(*) AS sleeps,
        xfs_ns(sum(ns)) AS slept, quantile_disc(ns, 0.5) AS p50,
        max(ns) AS max, any_value(unit) AS unit, avg(used / greatest(size, 1)) AS used,
        avg(reserved / greatest(size, 1)) AS reserved
    FROM with_program('log_space_slept') GROUP BY ALL
), begun AS (
    SELECT comm(tid, any_value(time)) AS program, kind, count(*) AS transactions,
        any_value(unit) AS unit
    FROM TRANSACTION GROUP BY tid, kind
), begun_by AS (
    SELECT program, kind, xfs_ns(sum(transactions)) AS transactions, any_value(unit) AS unit
    FROM begun GROUP BY ALL
)
SELECT program, kind, coalesce(transactions, 0) AS transactions, coalesce(sleeps, 0) AS sleeps,
    coalesce(slept, 0) AS slept, p50, max, coalesce(s.unit, b.unit) AS unit, used, reserved
FROM begun_by AS b FULL JOIN slept AS s USING (program, kind);

-- table
SELECT program, transaction(kind) AS type, transactions, sleeps, slept, p50, max, unit, used,
    reserved
FROM log_space ORDER BY slept DESC, transactions DESC, program, type LIMIT 200;

-- picture
WITH top AS (SELECT program, sum(slept) AS all_slept FROM log_space GROUP BY 1 HAVING sum(slept) > 0
             ORDER BY 2 DESC, 1 LIMIT 15)
SELECT program, transaction(kind) AS type, slept AS ns
FROM log_space JOIN top USING (program) WHERE slept > 0
ORDER BY all_slept DESC, program, slept DESC;

-- finding
WITH worst AS (FROM log_space WHERE slept > 0 ORDER BY slept DESC, program LIMIT 1)
SELECT format('Threads slept {} in {:,} waits for space in the log, {} of it {} in transactions of'
    ' the type {}; the log was {:.0f} % full: a larger log, or fewer of them at once.',
    duration((SELECT xfs_ns(sum(slept)) FROM log_space)),
    (SELECT xfs_ns(sum(sleeps)) FROM log_space), duration(slept), program, transaction(kind),
    100 * (used + reserved)),
    least(slept / greatest((SELECT to_ns FROM klogger.recording), 1), 1) AS weight
FROM worst;

-- samples
SELECT program, transaction(coalesce(kind, 0)) AS type, time, ns
FROM with_program('log_space_slept');

-- histogram
SELECT program, transaction(coalesce(kind, 0)) AS type, klogger.histogram_of(ns) AS each
FROM klogger.with_program('log_space_slept') GROUP BY ALL;
