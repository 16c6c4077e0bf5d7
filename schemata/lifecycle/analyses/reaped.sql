-- SPDX-License-Identifier: GPL-2.0-only
-- title: Ended, not waited for
-- question: How long are processes zombies, from their end until their parent asks for them?
-- order: 60
-- events: STARTED, RAN, ENDED, REAPED
-- include: _lives
-- combine: sum
-- column parent: program of the process that made them
-- column ended [count]: processes that ended
-- column reaped [count]: that were waited for
-- column never [count, bar]: that were not, until the end of the log
-- column p50 [ns, 0.5 of each]: half of those that were waited for were zombies no longer
-- column max [ns, max]: the longest
-- note: Without processes whose parent is not recorded, such as the command itself.
-- note: Children of a parent that ignores SIGCHLD, or has ended, need not be waited for.
-- empty: no process ended while the log was recorded

CREATE TEMP TABLE reaped AS
SELECT l.id, l.parent, l.from_ns, l.to_ns, r.time - l.to_ns AS zombie
FROM (FROM life WHERE to_ns IS NOT NULL) AS l ASOF LEFT JOIN (
    SELECT child, time FROM REAPED
) AS r ON r.child = l.tgid AND l.to_ns <= r.time;
CREATE TEMP TABLE reaped_of AS
SELECT comm(parent, to_ns) AS parent,
    count(*) AS ended, count(zombie) AS reaped, count(*) - count(zombie) AS never,
    quantile_disc(zombie, 0.5) AS p50, max(zombie) AS max
FROM reaped WHERE parent IS NOT NULL GROUP BY ALL;

-- table
FROM reaped_of ORDER BY ended DESC, parent;

-- finding
SELECT format('{:,} of {:,} processes that ended were waited for; the longest was a zombie for '
    '{}{}.',
    sum(reaped)::BIGINT, sum(ended)::BIGINT, duration(max(max)), CASE sum(never) WHEN 0 THEN ''
        ELSE format('; most that were not are children of {}', arg_max(parent, never)) END),
    sum(never) / sum(ended) AS weight
FROM reaped_of HAVING sum(reaped) > 0;

-- histogram
SELECT comm(parent, to_ns) AS parent, klogger.histogram_of(zombie) AS each
FROM reaped WHERE parent IS NOT NULL GROUP BY ALL;
