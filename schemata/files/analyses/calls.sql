-- SPDX-License-Identifier: GPL-2.0-only
-- title: Calls for files
-- question: Which calls for files does each program make, how many fail, and what do they take?
-- order: 10
-- events: NAMED, LOOK, READ, WRITE, LISTED, CLOSED, COPIED, RING, DESCRIPTORS
-- include: _files, _made
-- picture: bars x=took y=who
-- combine: sum
-- column program: program
-- column call: system call
-- column calls [count]: how often
-- column errors [count]: calls that failed
-- column took [ns, bar]: time in it, of all threads, with the time that they waited
-- column mean [ns, took/calls]: of one call
-- column of_all [share, apart]: that time as a part of the program's time in all these calls
-- column bytes [bytes]: read, written or listed; of mmap the length that was mapped
-- column who: program and system call
-- note: Of mmap those of files are counted, of fcntl those that copy a descriptor.
-- empty: no thread in scope made such a call while the log was recorded

CREATE TEMP TABLE files_calls AS
SELECT program, call, count(*) AS calls, count(*) FILTER (result BETWEEN -4095 AND -1) AS errors,
    files_big(sum(took)) AS took, files_big(sum(bytes)) AS bytes
FROM klogger.with_program('files_made') GROUP BY ALL;

-- table
SELECT program, call, calls, errors, took, (took / calls)::BIGINT AS mean,
    took / greatest(sum(took) OVER (PARTITION BY program), 1) AS of_all, bytes
FROM files_calls ORDER BY took DESC, calls DESC, program, call;

-- picture
SELECT format('{}: {}', program, call) AS who, took FROM files_calls
ORDER BY took DESC, who LIMIT 20;

-- finding
SELECT format('{:,} calls for files, {:,} of them failed; most are {} of {} ({:,}).',
    files_big(sum(calls)), files_big(sum(errors)), first(call ORDER BY calls DESC, program, call),
    first(program ORDER BY calls DESC, program, call), max(calls))
FROM files_calls HAVING count(*) > 0;
