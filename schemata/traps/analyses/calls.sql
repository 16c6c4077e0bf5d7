-- SPDX-License-Identifier: GPL-2.0-only
-- title: System calls
-- question: Which system calls does each program make, and how long are it and its threads in them?
-- order: 10
-- events: SYS_IN, SYS_OUT
-- include: _call
-- costs: SYS_IN
-- picture: bars x=total y=who
-- combine: sum
-- column program: program
-- column call: system call
-- column calls [count]: how often
-- column per_second [per_s, calls/seconds]: in each second of the log
-- column total [ns, bar]: time in it, of all threads, with the time that they waited
-- column mean [ns, total/calls]: of one call
-- column p50 [ns, 0.5 of each]: half of the calls take no longer
-- column p99 [ns, 0.99 of each]: 99 of 100 take no longer
-- column max [ns, max]: the longest call
-- column errors [count]: calls that failed
-- column who: program and system call
-- note: Calls that the C library answers by itself (clock_gettime, mostly) do not enter the kernel.
-- empty: no thread in scope made a system call while the log was recorded

CREATE TEMP TABLE call_of AS
SELECT program, syscall(id) AS call, count(*) AS calls, sum(ns)::BIGINT AS total,
    quantile_disc(ns, [0.5, 0.99]) AS p, max(ns) AS max,
       count(*) FILTER (ret BETWEEN -4095 AND -1) AS errors
FROM klogger.with_program('call') GROUP BY ALL;

-- table
SELECT program, call, calls, calls / (greatest(to_ns, 1) / 1e9) AS per_second, total,
    (total / calls)::BIGINT AS mean,
       p[1] AS p50, p[2] AS p99, max, errors
FROM call_of, klogger.recording ORDER BY total DESC, calls DESC, program, call;

-- picture
SELECT format('{}: {}', program, call) AS who, total FROM call_of ORDER BY total DESC, who LIMIT 20;

-- finding
SELECT format('{:,} system calls, {:,} of them {} of {}.', sum(calls)::BIGINT, max(calls),
    arg_max(call, calls), arg_max(program, calls))
FROM call_of HAVING count(*) > 0;

-- warning
-- What was under way when the log began or ended is not missed; nor is the beginning of a new
-- thread's first return, from a call that its parent made. Both ends of one call may be there and
-- not be joined: hence the greater of two numbers.
SELECT format('Left out, because their beginning or their end is not in the log, or events are '
              'missing in between: {:,} {}.',
              broken + greatest(ends, begins), CASE broken + greatest(ends, begins)
                  WHEN 1 THEN 'call' ELSE 'calls' END)
FROM (
    SELECT count(*) FILTER (from_ns IS NOT NULL AND to_ns IS NOT NULL AND broken) AS broken,
           count(*) FILTER (from_ns IS NULL
               AND NOT (outside AND (NOT broken OR coalesce(p.born > 0, false)))) AS ends,
           count(*) FILTER (to_ns IS NULL AND NOT (outside AND NOT broken)) AS begins
    FROM call_seen LEFT JOIN (SELECT pid, min(from_ns) AS born FROM klogger.process
        GROUP BY pid) AS p USING (pid)
) WHERE broken + greatest(ends, begins) > 0;

-- histogram
SELECT program, syscall(id) AS call, klogger.histogram_of(ns) AS each
FROM klogger.with_program('call') GROUP BY ALL;
