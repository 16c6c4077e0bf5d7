-- SPDX-License-Identifier: GPL-2.0-only
-- switch_cause: one row for each state with which a thread left its CPU.
--
--   state   of SCHEDOUT
--   cause   preempted, sleeps, waits, ends or other
--   words   the same for people
--
-- A kernel thread that idles has D and noload: it sleeps. A thread with the state 0 could go on.

CREATE TEMP TABLE switch_cause AS
WITH seen AS (
    SELECT state, string_split(task_state(state), '|') AS bits
    FROM (SELECT DISTINCT state FROM SCHEDOUT WHERE state IS NOT NULL)
), named AS (
    SELECT state, CASE WHEN state = 0 THEN 'preempted'
                       WHEN list_has_any(bits, ['X', 'Z', 'dead']) THEN 'ends'
                       WHEN list_contains(bits, 'D') AND NOT list_contains(bits,
                           'noload') THEN 'waits'
                       WHEN list_has_any(bits, ['S', 'noload']) THEN 'sleeps'
                           ELSE 'other' END AS cause
    FROM seen
)
SELECT state, cause, CASE cause WHEN 'preempted' THEN 'preempted or yielded'
    WHEN 'sleeps' THEN 'sleeps (S)'
                                WHEN 'waits' THEN 'waits (D)' WHEN 'ends' THEN 'ended'
                                    ELSE 'other' END AS words
FROM named;
