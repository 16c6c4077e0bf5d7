-- SPDX-License-Identifier: GPL-2.0-only
-- title: Rules
-- question: Which of the 26 rules can this log answer, and how many findings has each?
-- order: 15
-- events: NAMED, LOOK, READ, WRITE, LISTED, CLOSED, COPIED, RING, DESCRIPTORS, TIMED_WAKE, TICKED,
--     FILLED, IO_WAITED, IRQ_SEEN, KERNEL_TIMER
-- include: ../../files/analyses/_files _useless _timers _machine
-- column rule: number of the rule
-- column what: what a program does
-- column kind: a limit is not in a log, only what follows from it; of information there is no
--     measure of how often it is wrong
-- column findings [count]: of this rule
-- column answer: whether the log can tell, and what to do where it cannot

CREATE TEMP TABLE rules_said AS
SELECT r.number, r.what, r.kind, count(f.rule) AS findings, CASE
    WHEN r.number = 23 THEN 'not observable: compile with -Wmemset-transposed-args -Waddress'
    WHEN r.number = 25 THEN 'not observable: compile with -Wall -Wextra -Waddress '
        '-Wunused-result -D_FORTIFY_SOURCE=2'
    WHEN count(f.rule) > 0 THEN 'found'
    WHEN r.number = 18 AND (SELECT coalesce(max(value), 0) FROM klogger.parameter
        WHERE schema = 'useless' AND name = 'kernel_timers') = 0
        THEN 'not recorded: add --set kernel_timers=true'
    WHEN r.number = 21 AND (SELECT count(DISTINCT kind) FROM useless_window) < 2
        THEN 'no marks: ''klogger mark 1 start'', ''klogger mark 2 stop'''
    WHEN r.number = 22 AND NOT list_contains(getvariable('useless_has'), 'DELIVERED')
        THEN 'not recorded: add -s lifecycle, and run it with MALLOC_PERTURB_=165'
    WHEN r.number = 22 THEN 'no crash; only one with MALLOC_PERTURB_=165 set would tell'
    WHEN r.number = 24 AND NOT list_contains(getvariable('useless_has'), 'OVERRUN')
        THEN 'not recorded: add -s overruns'
    ELSE 'none' END AS answer
FROM useless_rule AS r LEFT JOIN useless_found AS f ON f.rule = 'D' || r.number
GROUP BY r.number, r.what, r.kind;

-- table
SELECT 'D' || number AS rule, what, kind, findings, answer FROM rules_said ORDER BY number;

-- finding
SELECT format('{} of 26 rules have findings, of {:,} pieces of useless work.{}',
    count(*) FILTER (findings > 0), sum(findings)::BIGINT,
    coalesce(' Not recorded: '
        || string_agg('D' || number, ', ' ORDER BY number) FILTER (answer LIKE 'not recorded%')
        || '; the table says how.', ''))
FROM rules_said HAVING sum(findings) > 0;
