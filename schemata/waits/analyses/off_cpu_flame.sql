-- SPDX-License-Identifier: GPL-2.0-only
-- title: Waits by stack
-- question: By which calls did programs come to where they waited, and for how long?
-- order: 30
-- events: BLOCKED, WOKEN, BACK
-- include: _waits
-- picture: flame x=total y=stack
-- combine: sum
-- column program: program
-- column times [count]: waits
-- column total [ns, bar]: from leaving the CPU to being woken, of all threads together
-- column max [ns, max]: the longest
-- column stack: the program, its functions (with the parameter `callers`) from the outermost to the
--     innermost, then those of the kernel
-- note: The times are exact, and threads wait side by side: their sum may exceed the elapsed time.
--     Frames in brackets stand for frames that are missing.
-- empty: no thread in scope waited while the log was recorded

CREATE TEMP VIEW off_cpu_of AS
SELECT pid, to_ns AS time, woken_ns - from_ns AS ns, stack, user_stack FROM wait;
CREATE TEMP VIEW off_cpu_named AS FROM klogger.with_program('off_cpu_of');
CREATE TEMP TABLE off_cpu_stack AS
SELECT program, path, count(*) AS times, sum(ns)::BIGINT AS total, max(ns) AS max
FROM klogger.with_path('off_cpu_named') GROUP BY program, path;

-- table
SELECT program, times, total, max, array_to_string(path, ';') AS stack
FROM off_cpu_stack ORDER BY total DESC, program, stack;

-- picture
FROM klogger.flame('off_cpu_stack') ORDER BY total DESC, stack;
