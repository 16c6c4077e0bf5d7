-- SPDX-License-Identifier: GPL-2.0-only
-- title: By kind
-- question: Which system calls, work items, requests and interrupts take how long?
-- order: 20
-- events: START, STOP, STOP_ELSEWHERE
-- include: _pair
-- picture: bars x=total y=what
-- combine: sum
-- column action: action
-- column kind: system call, function, number; empty if the key says nothing
-- column pairs [count]: how often
-- column total [ns]: all of them together
-- column mean [ns, total/pairs]: mean, without the logger's own cost
-- column p99 [ns, apart]: 99 of 100 are not longer
-- column max [ns, max]: the longest
-- column what: action and kind
-- column took [ns]: time from START to STOP
-- note: A system call that waits is as long as its wait: 'read' of a terminal takes until
--     a line is typed.
-- note: Work items run in threads of the kernel: only a recording of all threads (-a) has them.
-- empty: no START in the log has a STOP

CREATE TEMP TABLE kinds AS
SELECT action, kind, count(*) AS pairs, sum(ns) AS total, avg(ns) AS mean,
       quantile_disc(ns, 0.99) AS p99, max(ns) AS max
FROM pair WHERE NOT torn GROUP BY action, kind;

-- table
SELECT action, kind, pairs, total, mean, p99, max
FROM kinds ORDER BY total DESC, action, kind;

-- picture
SELECT trim(action || ' ' || kind) AS what, total FROM kinds ORDER BY total DESC, what LIMIT 20;

-- finding
SELECT format('{} {} took longest in all: {:,} times, together {}, {} in the mean.',
              action, kind, pairs, duration(total), duration(mean)) AS finding
FROM kinds WHERE kind <> '' ORDER BY total DESC, action, kind LIMIT 1;

-- warning
FROM pair_warning;

-- samples
SELECT action, kind, to_ns AS time, ns AS took FROM pair WHERE NOT torn;
