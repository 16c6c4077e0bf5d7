-- SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
-- title: Events
-- question: Which events were there, how often, and of which threads?
-- order: 1
-- picture: bars x=times y=event
-- column event: event type
-- column times [count, bar]: how often it was logged
-- column per_second [per_s]: in each second of the log
-- column threads [count]: threads that logged it
-- column most: the thread that logged most of them
-- column part [share]: its part of them
-- column first [ns]: time of the first, since the log's start
-- column over_time [spark, each]: events in each fortieth of the log
-- note: Of schemata without analyses of their own.
-- empty: the log has none of the events of its schemata

CREATE TEMP TABLE counts_thread AS
SELECT event, pid, count(*) AS times, min(time) AS first, max(time) AS last
FROM klogger.happened WHERE event IN ($events) GROUP BY event, pid;

-- table
WITH slot AS (
    SELECT event, least(time // (r.to_ns // 40 + 1), 39) AS k, count(*) AS times
    FROM klogger.happened, klogger.recording AS r WHERE event IN ($events) GROUP BY event, k
), line AS (
    SELECT event, map_from_entries(list((k, times))) AS h FROM slot GROUP BY event
), total AS (
    SELECT event, sum(times)::BIGINT AS times, count(pid) AS threads,
        max(CASE WHEN pid IS NOT NULL THEN (times, -pid, last) END) AS most, min(first) AS first
    FROM counts_thread GROUP BY event
)
SELECT event, times, times / (greatest(r.to_ns, 1) / 1e9) AS per_second,
    nullif(threads, 0) AS threads,
    CASE WHEN most IS NOT NULL THEN thread(-most[2], most[3]) END AS most,
    most[1] / times AS part, first,
    list_transform(range(40), lambda k: coalesce(h[k], 0)) AS over_time
FROM total JOIN line USING (event), klogger.recording AS r ORDER BY times DESC, event;

-- finding
SELECT format('{:,} events of {} types; {:,} of them are {}.', sum(times)::BIGINT, count(*),
    max(times), arg_max(event, (times, event)))
FROM (SELECT event, sum(times)::BIGINT AS times FROM counts_thread GROUP BY event)
HAVING count(*) > 1;
