-- SPDX-License-Identifier: GPL-2.0-only
-- title: System calls
-- question: Which system calls does each program make, how many fail, and what do they take?
-- order: 10
-- events: CALL0, CALL1, CALL2, CALL3, CALL4, CALL5, CALL6, ON_FILE, TRANSFER, FILE_NUMBER, PASSED,
--   SEEK, RANGE, OPENED, PATH, PATHS, DUPLICATED, MADE, FCNTL, IOCTL, SOCKET, ADDRESS, MESSAGE,
--   SOCKET_OPTION, ON_SOCKET, POLL, SELECTED, EPOLL_WAIT, EPOLL_CTL, FUTEX, SLEEP, CLOCK, SIGNAL,
--   ACTION, CHILD, CHILD_OF_FILE, CLONE, EXECUTED, PRCTL, LIMITED, MAPPING, MEMORY, RIGHTS,
--   RIGHTS_OF_FILE, RIGHTS_OF_PATH, UNFINISHED
-- include: _all
-- picture: bars x=took y=who
-- combine: sum
-- column program: program
-- column call: system call
-- column calls [count]: how often
-- column errors [count]: calls that failed
-- column took [ns, bar]: time in it, of all threads, with the time that they waited
-- column mean [ns, took/calls]: of one call
-- column max [ns, max]: the longest one
-- column of_all [share, apart]: that time as a part of the program's time in all these calls
-- column who: program and system call
-- note: Calls that began before the recording count, without their time.
-- empty: no thread in scope made such a call while the log was recorded

CREATE TEMP TABLE syscalls_calls AS
SELECT program, call, count(*) AS calls, count(*) FILTER (result BETWEEN -4095 AND -1) AS errors,
    syscalls_big(sum(took)) AS took, syscalls_big(max(took)) AS max
FROM klogger.with_program('syscalls_made') GROUP BY ALL;

-- table
SELECT program, call, calls, errors, took, (took / calls)::BIGINT AS mean, max,
    took / greatest(sum(took) OVER (PARTITION BY program), 1) AS of_all
FROM syscalls_calls ORDER BY took DESC, calls DESC, program, call;

-- picture
SELECT format('{}: {}', program, call) AS who, took FROM syscalls_calls
ORDER BY took DESC, who LIMIT 20;

-- finding
SELECT format('{:,} system calls, {:,} of them failed; most time is in {} of {}.',
    sum(calls)::BIGINT, sum(errors)::BIGINT, first(call ORDER BY took DESC, program, call),
    first(program ORDER BY took DESC, program, call)) AS finding
FROM syscalls_calls HAVING count(*) > 0
UNION ALL
SELECT format('{:,} {} had not returned when the recording ended; the longest is {} of {}.',
    count(*), CASE count(*) WHEN 1 THEN 'call' ELSE 'calls' END,
    first(call ORDER BY so_far DESC, program, call), first(program ORDER BY so_far DESC, program,
    call))
FROM klogger.with_program('syscalls_open') HAVING count(*) > 0;
