-- SPDX-License-Identifier: GPL-2.0-only
-- title: Handled faults
-- question: Which programs handle faults such as SIGSEGV, and go on?
-- order: 50
-- events: DELIVERED, ENDED
-- picture: bars x=times y=who
-- combine: sum
-- column program: program
-- column pid: process
-- column signal: signal
-- column times [count, bar]: how often its handler was called
-- column per_second [per_s, times/seconds]: in each second of the log
-- column function: innermost function where it happened most often
-- column who: program and signal
-- note: Run-times of managed languages use faults on purpose; a handler that only reports the fault
--     ends the process afterwards, which then is in crashes as well.
-- empty: no handler was called for a signal that would have dumped a core

CREATE TEMP VIEW handled_of AS
SELECT tgid AS pid, time, sig, user_stack FROM DELIVERED
WHERE action = 2 AND sig IN (3, 4, 5, 6, 7, 8, 11, 31);
CREATE TEMP TABLE handled AS
SELECT program, pid, signal(sig) AS signal, count(*) AS times, (
    SELECT s.frames[1] FROM klogger.stack AS s WHERE s.id = mode(h.user_stack)
) AS function
FROM klogger.with_program('handled_of') AS h GROUP BY program, pid, sig;

-- table
SELECT program, pid, signal, times, times / (greatest(to_ns, 1) / 1e9) AS per_second, function
FROM handled, klogger.recording ORDER BY times DESC, pid, signal;

-- picture
SELECT format('{}[{}]: {}', program, pid, signal) AS who, times FROM handled
ORDER BY times DESC, who LIMIT 15;

-- finding
SELECT format('{}[{}] handled {} {:,} times, and went on.', program, pid, signal, times)
FROM handled ORDER BY times DESC, pid LIMIT 1;
