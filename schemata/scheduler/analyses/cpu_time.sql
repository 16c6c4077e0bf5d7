-- SPDX-License-Identifier: GPL-2.0-only
-- title: CPU time
-- question: Which thread had how much CPU time, and on which CPUs?
-- order: 30
-- events: SCHEDIN, SCHEDOUT
-- include: _quantum
-- picture: stacked x=time y=thread colour=cpu
-- column thread: program and thread id
-- column pid: thread id
-- column tgid: process id
-- column time [ns]: CPU time
-- column share [share, bar]: of the log's length; 100 % is one CPU
-- column quanta [count]: times that it was given a CPU
-- column cpus: the CPUs that it ran on, and the part of its time on each
-- column cpu: CPU
-- note: The sum of all quanta, including those that were cut off by the beginning or the end of the
--     log. Time in interrupts counts for the thread that they interrupted.
-- note: The picture shows the 15 threads with the most CPU time.
-- empty: no thread in scope was switched in and out while the log was recorded

CREATE TEMP TABLE cpu_time AS
SELECT pid, cpu, arg_max(program, to_ns) AS program, max(to_ns) AS last,
    sum(to_ns - from_ns)::BIGINT AS ns, count(*) AS quanta
FROM quantum GROUP BY pid, cpu;
CREATE TEMP VIEW cpu_time_thread AS
SELECT pid, arg_max(program, last) AS program, sum(ns)::BIGINT AS ns, sum(quanta)::BIGINT AS quanta,
       array_to_string(list(format('{}: {:.0f} %', cpu, 100 * ns / total) ORDER BY cpu),
           ', ') AS cpus
FROM (SELECT *, greatest(sum(ns) OVER (PARTITION BY pid), 1) AS total FROM cpu_time) GROUP BY pid;

-- table
SELECT format('{}[{}]', c.program, c.pid) AS thread, c.pid, t.tgid, ns AS time,
       ns / nullif((SELECT to_ns - from_ns FROM klogger.recording), 0) AS share, quanta, cpus
FROM cpu_time_thread AS c LEFT JOIN klogger.thread AS t USING (pid) ORDER BY ns DESC, pid;

-- picture
WITH top AS (SELECT pid, program FROM cpu_time_thread ORDER BY ns DESC, pid LIMIT 15)
SELECT format('{}[{}]', t.program, pid) AS thread, c.cpu, c.ns AS time
FROM cpu_time AS c JOIN top AS t USING (pid)
ORDER BY sum(ns) OVER (PARTITION BY pid) DESC, pid, cpu;

-- finding
SELECT format('{}[{}] had the most CPU time: {}, which is {:.1f} % of one CPU.', program, pid,
    duration(ns),
              100 * ns / nullif((SELECT to_ns - from_ns FROM klogger.recording), 0))
FROM cpu_time_thread ORDER BY ns DESC, pid LIMIT 1;

-- warning
FROM quantum_warning;
