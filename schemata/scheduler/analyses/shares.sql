-- SPDX-License-Identifier: GPL-2.0-only
-- title: CPU shares over time
-- question: How much of a CPU does each thread get in every 100 ms, and on which CPUs?
-- order: 32
-- events: SCHEDIN, SCHEDOUT
-- include: _quantum
-- picture: timeline x=begins x2=ends row=thread colour=cpu y=low y2=high
-- column thread: thread; the program, and the thread id
-- column share [share, bar]: CPU time from its first to its last quantum; 100 % is one CPU
-- column least [share]: in the 100 ms in which it got least
-- column most [share]: in the 100 ms in which it got most
-- column sd [share]: standard deviation between the 100 ms
-- column slots [count]: how many 100 ms are compared: the whole ones between its first and its last
--     quantum
-- column over_time [spark]: CPU time in each fortieth of the log
-- column begins [ns]: time since the log's start
-- column ends [ns]: end of the bin
-- column cpu: CPU
-- column low [share]: where this CPU's part of the bin begins
-- column high [share]: where it ends; the height of all parts is the share of one CPU that the
--     thread had
-- note: The picture shows the 12 threads with the most CPU time; its bins are 100 ms, or longer if
--     the log has more than 100 of them.
-- empty: no thread in scope was switched in and out while the log was recorded

SET VARIABLE shares_wide = (SELECT greatest(to_ns // 100 + 1, 100_000_000) FROM klogger.recording);
CREATE TEMP MACRO shares_bins(width) AS TABLE
SELECT pid, cpu, bin, sum(least(to_ns, (bin + 1) * width)
    - greatest(from_ns, bin * width))::BIGINT AS ns
FROM (SELECT pid, cpu, from_ns, to_ns, unnest(range(from_ns // width, to_ns // width + 1)) AS bin
    FROM quantum)
GROUP BY pid, cpu, bin;
CREATE TEMP TABLE shares_thread AS
SELECT pid, arg_max(program, to_ns) AS program, min(from_ns) AS from_ns, max(to_ns) AS to_ns,
    sum(to_ns - from_ns)::BIGINT AS ns
FROM quantum GROUP BY pid;
CREATE TEMP TABLE shares_slot AS
SELECT b.pid, b.bin, sum(b.ns)::BIGINT AS ns FROM shares_bins(100_000_000) AS b
JOIN shares_thread AS t USING (pid)
WHERE b.bin * 100_000_000 >= t.from_ns AND (b.bin + 1) * 100_000_000 <= t.to_ns
GROUP BY b.pid, b.bin;
-- A slot in which the thread had nothing has no row, and is a zero.
CREATE TEMP TABLE shares_spread AS
SELECT pid, slots, CASE WHEN count(*) < slots THEN 0
    ELSE min(ns) END / 1e8 AS least, max(ns) / 1e8 AS most,
       sqrt(greatest(sum((ns / 1e8) ** 2) / slots - (sum(ns / 1e8) / slots) ** 2, 0)) AS sd
FROM shares_slot JOIN (
    SELECT pid, greatest(to_ns // 100_000_000 - (from_ns + 99_999_999) // 100_000_000, 0) AS slots
    FROM shares_thread
) USING (pid) GROUP BY pid, slots;

-- table
WITH fortieth AS (
    SELECT pid, bin, sum(ns) AS ns FROM shares_bins((SELECT to_ns // 40 + 1 FROM klogger.recording))
    GROUP BY pid, bin
), line AS (
    SELECT pid, map_from_entries(list((bin, ns))) AS h FROM fortieth GROUP BY pid
)
SELECT format('{}[{}]', program, pid) AS thread, ns / nullif(to_ns - from_ns, 0) AS share, least,
    most, sd,
       coalesce(slots, 0) AS slots, list_transform(range(40),
           lambda k: coalesce(h[k], 0)) AS over_time
FROM shares_thread LEFT JOIN shares_spread USING (pid) JOIN line USING (pid) ORDER BY ns DESC, pid;

-- picture
WITH top AS (
    SELECT pid, program, ns, row_number() OVER (ORDER BY ns DESC, pid) AS rank FROM shares_thread
    QUALIFY rank <= 12
), part AS (
    SELECT rank, format('{}[{}]', program, pid) AS thread, cpu, bin,
        b.ns / getvariable('shares_wide') AS share
    FROM shares_bins(getvariable('shares_wide')) AS b JOIN top USING (pid)
), stacked AS (
    SELECT *, sum(share) OVER (PARTITION BY rank, bin ORDER BY cpu) AS top FROM part
)
SELECT thread, cpu, bin * getvariable('shares_wide') AS begins,
       least((bin + 1) * getvariable('shares_wide'), (SELECT to_ns FROM klogger.recording)) AS ends,
       round(greatest(top - share, 0), 4) AS low, round(top, 4) AS high
FROM stacked WHERE share > 0 ORDER BY rank, begins, cpu LIMIT 8000;

-- finding
-- Threads of one program that never gave up a CPU by themselves, except at their end, wanted as
-- much as they could get.
SELECT format('{} threads of {} could run all along, and got unequal shares: from {:.0f} % to '
              '{:.0f} % of one CPU.',
              threads, program, 100 * low, 100 * high),
       high - low AS weight
FROM (
    SELECT program, count(*) AS threads, min(ns / (t.to_ns - t.from_ns)) AS low,
           max(ns / (t.to_ns - t.from_ns)) AS high
    FROM shares_thread AS t, klogger.recording AS r
    WHERE t.to_ns - t.from_ns > 0.8 * r.to_ns
        AND t.pid IN (SELECT pid FROM quantum GROUP BY pid HAVING count(*) FILTER (state <> 0) <= 1)
    GROUP BY program
) WHERE threads > 1 AND high > 1.5 * low ORDER BY weight DESC, program;

-- warning
FROM quantum_warning;
