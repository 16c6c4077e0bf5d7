-- SPDX-License-Identifier: GPL-2.0-only
-- title: System calls
-- question: Which system calls does each program make, and how long are it and its threads in them?
-- order: 10
-- events: SYS_IN, SYS_OUT
-- costs: SYS_IN
-- picture: bars x=total y=who
-- column program: program
-- column call: number of the system call
-- column calls [count]: how often
-- column per_second [per_s]: in each second of the log
-- column total [ns, bar]: time in it, of all threads, with the time that they waited
-- column mean [ns]: of one call
-- column p50 [ns]: half of the calls take no longer
-- column p99 [ns]: 99 of 100 take no longer
-- column max [ns]: the longest call
-- column errors [count]: calls that failed
-- column who: program and number of the call
-- note: Numbers are those of the machine: `ausyscall NUMBER` gives the name.
-- note: Calls that the C library answers by itself (clock_gettime, mostly) do not enter the kernel.
-- empty: no thread in scope made a system call while the log was recorded

-- A thread makes one call at a time: the end belongs to its latest beginning, if that is of the same call.
CREATE TEMP TABLE call AS
WITH paired AS (
    SELECT o.pid, o.time, o.id, o.ret, i.id AS begun, o.time - i.time - cost_of('SYS_IN') AS ns
    FROM SYS_OUT AS o ASOF LEFT JOIN SYS_IN AS i ON o.pid = i.pid AND o.time >= i.time
    -- One beginning has one end; a second one has lost its own.
    QUALIFY row_number() OVER (PARTITION BY o.pid, i.time ORDER BY o.time) = 1
)
SELECT pid, time, id, ret, ns FROM paired WHERE begun = id;
CREATE TEMP TABLE call_of AS
SELECT program, id, count(*) AS calls, sum(ns)::BIGINT AS total, quantile_disc(ns, [0.5, 0.99]) AS p, max(ns) AS max,
       count(*) FILTER (ret BETWEEN -4095 AND -1) AS errors
FROM klogger.with_program('call') GROUP BY program, id;

-- table
SELECT program, id AS call, calls, calls / (greatest(to_ns, 1) / 1e9) AS per_second, total, (total / calls)::BIGINT AS mean,
       p[1] AS p50, p[2] AS p99, max, errors
FROM call_of, klogger.recording ORDER BY calls DESC, program, id;

-- picture
SELECT format('{}: {}', program, id) AS who, total FROM call_of ORDER BY total DESC, who LIMIT 20;

-- finding
SELECT format('{:,} system calls, {:,} of them call {} of {}.', sum(calls)::BIGINT, max(calls), arg_max(id, calls), arg_max(program, calls))
FROM call_of HAVING count(*) > 0;

-- warning
SELECT format('Left out, because their beginning is not in the log: {:,} calls.', count)
FROM (SELECT (SELECT count(*) FROM SYS_OUT) - (SELECT count(*) FROM call) AS count) WHERE count > 0;
