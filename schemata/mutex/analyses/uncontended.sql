-- SPDX-License-Identifier: GPL-2.0-only
-- title: Uncontended operations
-- question: How often are mutexes and conditions used, and how often without the kernel?
-- order: 10
-- events: USED
-- picture: stacked x=times y=lock colour=how
-- combine: sum
-- column program: program
-- column lock: its name and process; without a name process and address
-- column kind: mutex or condition
-- column taken [count]: times that it was locked, or that a condition was waited for
-- column waited [count]: of them those that had to wait in the kernel
-- column contended [share, bar, of taken]: their part
-- column tries [count]: calls of pthread_mutex_trylock()
-- column failed [count]: of them those that did not get it
-- column released [count]: times that it was unlocked, or that a condition was signalled
-- column woke [count]: of them those that called the kernel to wake a thread
-- column free [share, apart]: part of all these operations without any call of the kernel
-- column threads [count, apart]: that used it
-- column times [count]: operations
-- column how: how they ended
-- note: The probes take longer than the operations, and so change how often threads meet.
-- note: Waiting for a condition unlocks and locks a mutex as well, which is not counted.
-- empty: no thread in scope used a mutex or a condition of the C library

CREATE TEMP TABLE uncontended AS
SELECT *, data(lock, tgid, time) AS named FROM (
    SELECT tgid, lock, kind, max(time) AS time, count(DISTINCT tid) AS threads,
        sum(takes)::BIGINT AS taken, sum(waits)::BIGINT AS waited, sum(tries)::BIGINT AS tries,
        sum(failed)::BIGINT AS failed, sum(drops)::BIGINT AS released, sum(wakes)::BIGINT AS woke,
        sum(takes + tries + drops)::BIGINT AS operations, sum(waits + wakes)::BIGINT AS calls
    FROM (
        SELECT time, tid, tgid, lock, kind, takes::BIGINT AS takes, waits::BIGINT AS waits,
            tries::BIGINT AS tries, failed::BIGINT AS failed, drops::BIGINT AS drops,
            wakes::BIGINT AS wakes
        FROM USED
    ) GROUP BY tgid, lock, kind
);

-- table
SELECT comm(tgid, time) AS program, CASE WHEN named = hex(lock) THEN format('{}:{}', tgid, named)
        ELSE format('{} ({})', named, thread(tgid, time)) END AS lock,
    lock_object(kind) AS kind, taken, waited,
    CASE WHEN taken > 0 THEN least(waited / taken, 1) END AS contended, tries, failed, released,
    woke, greatest(1 - calls / greatest(operations, 1), 0) AS free, threads
FROM uncontended ORDER BY waited DESC, operations DESC, tgid, lock;

-- picture
WITH most AS (FROM uncontended ORDER BY operations DESC, tgid, lock LIMIT 12)
SELECT format('{} {}', lock_object(kind), named) AS lock, how, times FROM (
    SELECT *, 'without the kernel' AS how,
        greatest(operations - calls - failed, 0) AS times FROM most
    UNION ALL SELECT *, 'waited' AS how, waited AS times FROM most
    UNION ALL SELECT *, 'woke' AS how, woke AS times FROM most
    UNION ALL SELECT *, 'tried in vain' AS how, failed AS times FROM most
) WHERE times > 0 ORDER BY operations DESC, tgid, lock, how;

-- finding
WITH said AS (
    SELECT 1 AS line, format('{:.1f} % of {:,} operations on {:,} mutexes and conditions did not '
        'call the kernel.', 100 * greatest(1 - sum(calls) / greatest(sum(operations), 1), 0),
        sum(operations)::BIGINT, count(*)) AS text
    FROM uncontended HAVING count(*) > 0
    UNION ALL SELECT 2, format('Most contended is {}: {:,} of {:,} times that it was taken, a '
        'thread had to wait.', arg_max(named, waited), max(waited), arg_max(taken, waited))
    FROM uncontended WHERE kind = 0 AND waited > 0 HAVING count(*) > 0
)
SELECT text FROM said ORDER BY line;
