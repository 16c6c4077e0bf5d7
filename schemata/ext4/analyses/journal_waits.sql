-- SPDX-License-Identifier: GPL-2.0-only
-- title: Waits to enter the journal
-- question: For what do threads wait before they may change the file system?
-- order: 15
-- events: HANDLE, COMMIT_PHASE, CHECKPOINT
-- include: _ext4
-- picture: bars x=waited y=cause
-- combine: sum
-- column cause: what was in the way; the first that fits
-- column waits [count]: of at least 10 us
-- column waited [ns, bar]: time of all
-- column of_all [share, waited/*]: of the time of all such waits
-- column p50 [ns, 0.5 of each]: half of them took no longer
-- column p99 [ns, 0.99 of each]: 99 of 100 took no longer
-- column max [ns, max]: the longest
-- column program [most]: program that waited longest in all
-- column kept_open [most]: who held a handle of the locked transaction last, most often
-- note: The cause is inferred from the time: a wait that overlaps the lock of a commit is for it.
-- note: "transaction was full" began before the commit, "transaction locked" within its lock.
-- empty: nobody waited 10 us for a handle of a journal

-- The last handle that is given back lets the commit go on.
CREATE TEMP TABLE journal_waits_open AS
SELECT c.device, c.transaction, c.start_ns, max({'time': h.time, 'tid': h.tid,
    'caller': coalesce(h.caller_symbol, handle_kind(h.kind))}) AS last
FROM ext4_commit AS c JOIN HANDLE AS h ON h.device = c.device AND h.transaction = c.transaction
    AND h.time BETWEEN c.start_ns AND c.flushing_ns
GROUP BY c.device, c.transaction, c.start_ns;
CREATE TEMP TABLE journal_waits_space AS
SELECT device, tid AS pid, time FROM CHECKPOINT;
CREATE TEMP TABLE journal_waits_locks AS
SELECT c.device, c.transaction, c.start_ns, c.locking_ns, c.flushing_ns, o.last
FROM ext4_commit AS c LEFT JOIN journal_waits_open AS o USING (device, transaction, start_ns)
WHERE c.locking_ns IS NOT NULL AND c.flushing_ns IS NOT NULL;
-- Locks of one device do not overlap: the latest that began before the wait's end is it.
CREATE TEMP TABLE journal_waits AS
WITH placed AS (
    SELECT e.*, l.start_ns, l.flushing_ns, l.last,
        coalesce(l.flushing_ns >= e.from_ns, false) AS locked
    FROM ext4_entry AS e ASOF LEFT JOIN journal_waits_locks AS l
        ON e.device = l.device AND e.to_ns >= l.locking_ns
), spaced AS (
    SELECT p.*, coalesce(s.time >= p.from_ns, false) AS no_space
    FROM placed AS p ASOF LEFT JOIN journal_waits_space AS s
        ON p.device = s.device AND p.pid = s.pid AND p.to_ns >= s.time
)
SELECT pid, time, from_ns, to_ns, ns, device, kind, caller_symbol,
    CASE WHEN no_space THEN 'journal full (checkpoint)'
        WHEN locked AND from_ns < start_ns THEN 'transaction was full'
        WHEN locked THEN 'transaction locked (commit)'
        ELSE 'unexplained (CPU, memory)' END AS cause,
    CASE WHEN locked AND NOT no_space THEN last END AS last
FROM spaced;
CREATE TEMP VIEW journal_waits_last AS
SELECT cause, last.tid AS pid, last.time AS time, last.caller AS caller FROM journal_waits
WHERE last IS NOT NULL;
CREATE TEMP TABLE journal_waits_by AS
SELECT cause, program, sum(ns) AS total FROM klogger.with_program('journal_waits')
GROUP BY cause, program;
CREATE TEMP TABLE journal_waits_kept AS
SELECT cause, mode(who ORDER BY who) AS kept_open
FROM (SELECT cause, format('{} ({})', program, caller) AS who
    FROM klogger.with_program('journal_waits_last')) GROUP BY cause;
CREATE TEMP TABLE journal_waits_table AS
SELECT cause, count(*) AS waits, ext4_total(ns) AS waited,
    sum(ns) / greatest(sum(sum(ns)) OVER (), 1) AS of_all, quantile_disc(ns, 0.5) AS p50,
    quantile_disc(ns, 0.99) AS p99, max(ns) AS max
FROM journal_waits GROUP BY cause;

-- table
SELECT w.*, (SELECT max({'total': total, 'program': program}).program FROM journal_waits_by AS b
    WHERE b.cause = w.cause) AS program, kept_open
FROM journal_waits_table AS w LEFT JOIN journal_waits_kept USING (cause)
ORDER BY waited DESC, cause;

-- finding
WITH worst AS (FROM journal_waits_table ORDER BY waited DESC, cause LIMIT 1)
SELECT format('Threads waited {} to enter a journal, {:.0f} % of it because: {}{}.',
        duration((SELECT ext4_total(waited) FROM journal_waits_table)), 100 * of_all, cause,
        coalesce((SELECT format('; last held by {}', kept_open) FROM journal_waits_kept AS k
            WHERE k.cause = worst.cause), '')),
    least((SELECT sum(waited) FROM journal_waits_table)
        / (SELECT greatest(to_ns - from_ns, 1) FROM klogger.recording), 1) AS weight
FROM worst;

-- samples
SELECT cause, time, ns AS waited FROM journal_waits;

-- histogram
SELECT cause, klogger.histogram_of(ns) AS each FROM journal_waits GROUP BY cause;
