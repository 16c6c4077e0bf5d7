-- SPDX-License-Identifier: GPL-2.0-only
-- title: Stops
-- question: Which processes were stopped, by what, for how long, and who let them go on?
-- order: 45
-- events: STOPPED, CONTINUED
-- picture: bars x=stopped y=who
-- column program: program
-- column pid: process
-- column why: by a signal, or for a debugger
-- column signal: that stopped it most often
-- column stops [count]: how often its threads stopped
-- column stopped [ns, bar]: how long its threads were stopped, added up
-- column longest [ns]: the longest
-- column still [count]: threads that were stopped at the end of the log
-- column woken_by: thread that woke them most often
-- column who: program and process
-- note: For a debugger, a thread stops at each system call and signal that it asked for.
-- empty: no thread stopped while the log was recorded

CREATE TEMP VIEW stops_begin AS
SELECT pid AS key, why AS who, time, {'tgid': tgid, 'sig': sig} AS begun FROM STOPPED;
CREATE TEMP VIEW stops_end AS
SELECT pid AS key, why AS who, time, {'waker': waker} AS ended FROM CONTINUED;
CREATE TEMP TABLE stops_pair AS
SELECT key AS pid, NULL AS place, who AS why, begun, ended, from_ns, to_ns
FROM klogger.pairs('stops_begin', 'stops_end') WHERE from_ns IS NOT NULL;
CREATE TEMP TABLE stops AS
SELECT b.pid, b.why, begun.tgid AS tgid, begun.sig AS sig, ended.waker AS waker, b.from_ns,
    coalesce(b.to_ns, r.to_ns) - b.from_ns AS ns, b.to_ns IS NULL AS still, broken
FROM klogger.broken('stops_pair', ['STOPPED', 'CONTINUED']) AS b, klogger.recording AS r;
CREATE TEMP TABLE stops_of AS
SELECT comm(tgid, max(from_ns)) AS program, tgid AS pid, stop(why) AS why,
    signal(mode(sig)) AS signal, count(*) AS stops,
    least(sum(ns), 9223372036854775807)::BIGINT AS stopped, max(ns) AS longest,
    count(*) FILTER (still) AS still,
    CASE WHEN count(waker) > 0 THEN thread(mode(waker), max(from_ns)) END AS woken_by
FROM stops WHERE NOT broken GROUP BY tgid, stops.why;

-- table
FROM stops_of ORDER BY stopped DESC, pid, why;

-- picture
SELECT format('{}[{}]: {}', program, pid, why) AS who, sum(stopped)::BIGINT AS stopped
FROM stops_of GROUP BY who ORDER BY stopped DESC, who LIMIT 15;

-- finding
SELECT format('{}[{}] was {} for {}{}.', program, pid, why, duration(stopped),
    CASE WHEN woken_by IS NOT NULL
        THEN format(' ({:,} times; woken by {})', stops, woken_by)
        ELSE ', until the end of the log' END),
    least(longest / greatest(to_ns, 1), 1) AS weight
FROM stops_of, klogger.recording ORDER BY stopped DESC, pid, why LIMIT 1;

-- warning
SELECT format('Left out, because events are missing in between: {:,} {}.', count(*),
    CASE count(*) WHEN 1 THEN 'stop' ELSE 'stops' END)
FROM stops WHERE broken HAVING count(*) > 0;
