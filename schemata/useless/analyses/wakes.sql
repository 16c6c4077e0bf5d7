-- SPDX-License-Identifier: GPL-2.0-only
-- title: Wake-ups by timers
-- question: Which threads do timers wake, how often, and what do they do then?
-- order: 20
-- events: TIMED_WAKE
-- picture: bars x=per_second y=thread
-- combine: sum
-- column thread: program and number
-- column times [count]: how often a timer woke it
-- column per_second [per_s, bar, times/seconds]: in each second of the log
-- column slept [ns, apart]: half of the times it had slept no longer
-- column ran [ns]: time on a CPU after that, in all
-- column short [count]: times that it ran for less than a millisecond
-- empty: no thread in scope was woken by a timer

CREATE TEMP TABLE wakes AS
SELECT format('{}[{}]', comm(pid, max(time)), pid) AS thread, count(*) AS times,
    1000 * quantile_disc(slept, 0.5)::BIGINT AS slept,
    least(sum(ran), 9223372036854775807)::BIGINT AS ran,
    count(*) FILTER (ran < 1_000_000) AS short
FROM TIMED_WAKE GROUP BY pid;

-- table
SELECT thread, times, times / (greatest(to_ns, 1) / 1e9) AS per_second, slept, ran, short
FROM wakes, klogger.recording ORDER BY times DESC, thread;

-- picture
SELECT thread, times / (greatest(to_ns, 1) / 1e9) AS per_second
FROM wakes, klogger.recording ORDER BY times DESC, thread LIMIT 15;

-- finding
SELECT format('Timers woke {:,} threads {:,} times; {} most often ({:,}).', count(*),
    sum(times)::BIGINT, arg_max(thread, times), max(times))
FROM wakes HAVING count(*) > 0;
