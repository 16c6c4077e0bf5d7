-- SPDX-License-Identifier: GPL-2.0-only
-- title: Operations on files
-- question: Which operations on which file system take how long?
-- order: 10
-- events: FILE_CALL, NAME_CALL, RING_CALL, STUCK_CALL, FILE_SYSTEM, OPEN_FILE
-- include: _operations
-- picture: cdf x=ns y=part colour=series scale=log
-- combine: sum
-- column system: file system, with its device; empty: not known, as of paths from the root on
-- column call: system call; of io_uring its operation
-- column times [count]: operations that have returned
-- column errors [count]: those that failed
-- column bytes [bytes]: read or written
-- column total [ns, bar]: time in them, of all threads together
-- column p50 [ns, 0.5 of each]: half of them took no longer
-- column p99 [ns, 0.99 of each]: 99 % of them
-- column p999 [ns, 0.999 of each]: 99.9 % of them
-- column longest [ns, max]: the longest
-- column fluctuation [apart]: p999 / p50; of fewer than 100 operations it is not given
-- column series: call and file system
-- column ns [ns]: how long an operation took
-- column part: part of the operations that took no longer
-- note: Operations on pipes, sockets and terminals are left out. Page faults of mapped files are no
--   operations.
-- empty: no thread in scope made such a call while the log was recorded

CREATE TEMP VIEW file_operations_all AS
SELECT coalesce(s.system, CASE WHEN o.device IS NOT NULL THEN disk(o.device) ELSE '' END)
    AS system, o.call, o.to_ns - o.from_ns AS ns, o.result
FROM operations_done AS o LEFT JOIN operations_system AS s USING (device)
WHERE o.to_ns IS NOT NULL;
CREATE TEMP TABLE file_operations_sum AS
SELECT system, call, times, errors,
    CASE WHEN regexp_matches(call, 'read|write|copy|send|splice')
        THEN least(coalesce(moved, 0), 9223372036854775807)::BIGINT ELSE 0 END AS bytes,
    least(spent, 9223372036854775807)::BIGINT AS total, p[1] AS p50, p[2] AS p99, p[3] AS p999,
    longest
FROM (
    SELECT system, call, count(*) AS times, count(*) FILTER (result BETWEEN -4095 AND -1) AS errors,
        sum(result) FILTER (result > 0) AS moved, sum(ns) AS spent, max(ns) AS longest,
        quantile_disc(ns, [0.5, 0.99, 0.999]) AS p
    FROM file_operations_all GROUP BY system, call
);
-- Of the calls that took most of the time.
CREATE TEMP VIEW file_operations_series AS
SELECT t.series, t.place, a.ns
FROM file_operations_all AS a JOIN (
    SELECT system, call, trim(call || ' ' || system) AS series,
        row_number() OVER (ORDER BY total DESC, system, call) AS place
    FROM file_operations_sum WHERE times >= 10 ORDER BY place LIMIT 6
) AS t USING (system, call);

-- table
SELECT system, call, times, errors, bytes, total, p50, p99, p999, longest,
    CASE WHEN times >= 100 THEN round(p999 / greatest(p50, 1), 1) END AS fluctuation
FROM file_operations_sum ORDER BY total DESC, system, call;

-- picture
SELECT series, ns, part FROM klogger.curve_of('file_operations_series', 8) ORDER BY place, ns, part;

-- finding
SELECT format('{} on {}: {:,} of them took {}; half of them at most {}, the longest {}.', call,
    CASE WHEN system = '' THEN 'paths' ELSE system END, times, duration(total), duration(p50),
    duration(longest)),
    least(total / greatest((SELECT to_ns - from_ns FROM klogger.recording), 1), 1)
FROM file_operations_sum ORDER BY total DESC, system, call LIMIT 1;

-- histogram
SELECT system, call, klogger.histogram_of(ns) AS each FROM file_operations_all GROUP BY ALL;
