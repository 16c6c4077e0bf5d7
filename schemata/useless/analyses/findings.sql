-- SPDX-License-Identifier: GPL-2.0-only
-- title: Useless work
-- question: Which work of each program was of no use, and what would be saved without it?
-- order: 10
-- events: NAMED, LOOK, READ, WRITE, LISTED, CLOSED, COPIED, RING, DESCRIPTORS, TIMED_WAKE, TICKED,
--     FILLED, IO_WAITED, IRQ_SEEN, KERNEL_TIMER
-- include: ../../files/analyses/_files _useless _timers _machine
-- picture: matrix x=program y=what size=shown
-- column program: program
-- column pid: process; empty: several, or the kernel
-- column rule: number of the rule, see the README of the schema
-- column what: what it does
-- column object: file, directory, thread, timer: what it is about
-- column times [count, bar]: how often
-- column calls [count]: system calls that could be saved
-- column bytes [bytes]: that need not be moved
-- column wakeups [count]: of the CPU that could be saved
-- column first [ns]: when it was first seen
-- column last [ns]: and when last
-- column evidence: what the log has of it
-- column remedy: what to do instead
-- column shown [count]: how often, all findings of the rule together
-- note: A rule can be wrong: what looks useless from outside may be needed. The analysis rules says
--     which rules this log can answer.
-- empty: none of the rules found useless work

CREATE TEMP TABLE useless_shown AS
SELECT f.rule, r.what, r.remedy, f.pid, CASE WHEN rule = 'D18' THEN 'kernel'
        WHEN f.pid IS NULL THEN 'all programs' ELSE comm(f.pid, f.last) END AS program,
    f.object, f.times, f.calls, f.bytes, f.wakeups, f.first, f.last, f.evidence
FROM useless_found AS f JOIN useless_rule AS r ON f.rule = 'D' || r.number;

-- table
SELECT program, pid, rule, what, object, times, calls, bytes, wakeups, first, last, evidence, remedy
FROM useless_shown ORDER BY calls + wakeups DESC, times DESC, rule, object;

-- picture
SELECT program, rule || ': ' || what AS what, files_big(sum(times)) AS shown FROM useless_shown
GROUP BY ALL ORDER BY shown DESC, what, program LIMIT 60;

-- finding
SELECT format('{} {}: {} ({:,} times; {}).', program, what, object, times, remedy),
    files_lost(calls) AS weight
FROM useless_shown WHERE rule <> 'D18'
ORDER BY calls + wakeups DESC, times DESC, rule, object LIMIT 3;

-- warning
SELECT format('Left out, because events are missing while they were open: {:,} {}.', count(*),
    CASE count(*) WHEN 1 THEN 'file' ELSE 'files' END)
FROM files_session WHERE broken HAVING count(*) > 0;
