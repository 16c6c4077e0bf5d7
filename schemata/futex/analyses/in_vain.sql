-- SPDX-License-Identifier: GPL-2.0-only
-- title: Calls in vain
-- question: For which locks do threads call the kernel without any use?
-- order: 25
-- events: WAIT, WAITED, WOKE
-- include: _futex
-- picture: stacked x=times y=place colour=what
-- column program: program
-- column lock: its name and process; without a name process and address
-- column site: function that waits for it most often
-- column waits [count]: calls that wait
-- column spurious [count]: of them those that were woken, and then had to wait again
-- column again [count]: those that the lock's value ended at once (EAGAIN)
-- column timeouts [count]: those that ended by their timeout
-- column wakes [count]: calls that wake
-- column nobody [count]: of them those that woke nobody
-- column in_vain [share, bar]: spurious, again and nobody: their part of all calls for this lock
-- column place: function that waits, and the lock
-- column times [count]: calls
-- column what: why they were of no use
-- note: A wait is spurious if it returned 0 and the thread's next call for the same lock is to wait
--     again. Of a condition, the thread may have found work in between, without a call.
-- empty: no thread in scope called the kernel for a lock

CREATE TEMP TABLE in_vain_call AS
SELECT pid, tgid, lock, stack, op, result, time, true AS waits FROM futex_wait
WHERE NOT broken AND to_ns IS NOT NULL
UNION ALL SELECT tid, tgid, lock, 0, op, result, time, false FROM WOKE;
-- With priority inheritance (6, 11, 13) the kernel gives the lock to the one that it wakes.
CREATE TEMP TABLE in_vain_next AS
SELECT tgid, lock, NULL AS place, time AS from_ns, next AS to_ns
FROM (
    SELECT *, lead(waits) OVER later AS again, lead(time) OVER later AS next FROM in_vain_call
    WINDOW later AS (PARTITION BY pid, lock ORDER BY time)
) WHERE waits AND again AND result = 0 AND op NOT IN (6, 11, 13);
CREATE TEMP TABLE in_vain AS
WITH spurious AS (
    SELECT tgid, lock, count(*) AS spurious
    FROM klogger.broken('in_vain_next', ['WAIT', 'WAITED', 'WOKE']) WHERE NOT broken
    GROUP BY tgid, lock
)
SELECT tgid, lock, max(time) AS time, mode(s.site) FILTER (waits) AS site,
    count(*) FILTER (waits) AS waits, coalesce(any_value(spurious), 0) AS spurious,
    count(*) FILTER (waits AND result = -11) AS again,
    count(*) FILTER (waits AND result = -110) AS timeouts,
    count(*) FILTER (NOT waits) AS wakes,
    count(*) FILTER (NOT waits AND result = 0 AND op <> 7) AS nobody
FROM in_vain_call AS c LEFT JOIN spurious USING (tgid, lock)
LEFT JOIN futex_site AS s ON s.id = c.stack AND c.stack > 0
GROUP BY tgid, lock;

-- table
SELECT comm(tgid, time) AS program, futex_name(tgid, lock, time) AS lock, site, waits, spurious,
    again, timeouts, wakes, nobody, (spurious + again + nobody) / (waits + wakes) AS in_vain
FROM in_vain ORDER BY spurious + again + nobody DESC, waits + wakes DESC, lock;

-- picture
WITH worst AS (
    SELECT format('{} {}', coalesce(site, ''), data(lock, tgid, time)) AS place, spurious, again,
        nobody, spurious + again + nobody AS total
    FROM in_vain ORDER BY total DESC, place LIMIT 12
)
SELECT place, what, times FROM (
    SELECT place, 'spurious' AS what, spurious AS times, total FROM worst
    UNION ALL SELECT place, 'value had changed', again, total FROM worst
    UNION ALL SELECT place, 'woke nobody', nobody, total FROM worst
) WHERE times > 0 ORDER BY total DESC, place, what;

-- finding
SELECT format('{:,} of {:,} calls for locks were in vain: spurious waits {:,}, changed values '
    '{:,}, wakes of nobody {:,}.', sum(spurious + again + nobody)::BIGINT,
    sum(waits + wakes)::BIGINT, sum(spurious)::BIGINT, sum(again)::BIGINT, sum(nobody)::BIGINT)
FROM in_vain HAVING count(*) > 0;
