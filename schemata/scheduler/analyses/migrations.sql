-- SPDX-License-Identifier: GPL-2.0-only
-- title: Migrations
-- question: Which threads are moved between CPUs, and from where to where?
-- order: 60
-- events: MIGRATE, TRY_TO_WAKEUP
-- picture: matrix x=to_cpu y=from_cpu size=times
-- combine: sum
-- column thread: program and thread id
-- column migrations [count, bar]: times that it was moved to another CPU
-- column per_second [per_s, migrations/seconds]: in each second of the log
-- column at_wakeup [share, of migrations]: within 10 µs after its TRY_TO_WAKEUP: the CPU was chosen
--     when it was woken
-- column route [apart]: the commonest way, and its part
-- column from_cpu: from CPU
-- column to_cpu: to CPU
-- column times [count]: migrations
-- note: What does not happen at a wake-up is done by load balancing, or by a change of the CPUs
--     that a thread may use.
-- empty: no thread in scope was moved to another CPU

CREATE TEMP VIEW migration_woken AS
SELECT m.pid, m.time, m.from_cpu, m.to_cpu, coalesce(m.time - w.time <= 10_000, false) AS at_wakeup
FROM MIGRATE AS m ASOF LEFT JOIN TRY_TO_WAKEUP AS w ON m.pid = w.pid AND m.time >= w.time;
CREATE TEMP TABLE migration AS
SELECT pid, arg_max(program, time) AS program, max(time) AS last, from_cpu, to_cpu,
    count(*) AS times,
       count(*) FILTER (at_wakeup) AS at_wakeup
FROM klogger.with_program('migration_woken') GROUP BY pid, from_cpu, to_cpu;

-- table
SELECT format('{}[{}]', arg_max(program, last), pid) AS thread, sum(times)::BIGINT AS migrations,
       sum(times) / nullif((SELECT (to_ns - from_ns) / 1e9 FROM klogger.recording),
           0) AS per_second,
       sum(at_wakeup) / sum(times) AS at_wakeup,
       format('{} to {}: {:.0f} %', arg_max(from_cpu, times), arg_max(to_cpu, times),
           100 * max(times) / sum(times)) AS route
FROM migration GROUP BY pid ORDER BY migrations DESC, pid;

-- picture
SELECT from_cpu, to_cpu, sum(times)::BIGINT AS times FROM migration GROUP BY ALL
ORDER BY times DESC;

-- finding
SELECT format('Threads were moved to another CPU {}; {:.0f} % of these when they were woken.',
              CASE sum(times)::BIGINT WHEN 1 THEN 'once'
                  ELSE format('{:,} times', sum(times)::BIGINT) END,
                  100 * sum(at_wakeup) / sum(times))
FROM migration HAVING count(*) > 0;
