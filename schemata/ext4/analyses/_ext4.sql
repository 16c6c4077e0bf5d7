-- SPDX-License-Identifier: GPL-2.0-only
-- What analyses of `ext4` share: each commit with its phases, each wait to enter the journal, and
-- each fsync() with the commit that it waited for.

-- Times of a log that is not whole may be too large: two of these can be taken from a time.
CREATE TEMP MACRO ext4_ns(ns) AS
    (CASE WHEN ns <= 4611686018427387903 THEN ns ELSE 4611686018427387903 END)::BIGINT;

-- The phases of a commit follow each other in one thread. Where one is missing, so is what comes
-- behind; a device may be mounted again, and its transactions have the same numbers again.
CREATE TEMP TABLE ext4_commit AS
WITH placed AS (
    SELECT device, transaction, phase, requested, tid, time AS start_ns,
        lead({'phase': phase, 'of': transaction, 'time': time}, 1) OVER later AS one,
        lead({'phase': phase, 'of': transaction, 'time': time}, 2) OVER later AS two,
        lead({'phase': phase, 'of': transaction, 'time': time}, 3) OVER later AS three,
        lead({'phase': phase, 'of': transaction, 'time': time}, 4) OVER later AS four
    FROM COMMIT_PHASE WHERE phase < 5 WINDOW later AS (PARTITION BY device ORDER BY time)
), begun AS (
    SELECT device, transaction, requested, tid, start_ns,
        CASE WHEN one.phase = 1 AND one.of = transaction THEN one.time END AS locking_ns,
        CASE WHEN two.phase = 2 AND two.of = transaction THEN two.time END AS flushing_ns,
        CASE WHEN three.phase = 3 AND three.of = transaction THEN three.time END AS logging_ns,
        CASE WHEN four.phase = 4 AND four.of = transaction THEN four.time END AS end_ns
    FROM placed WHERE phase = 0
)
SELECT b.*, s.handles, s.blocks, s.logged
FROM begun AS b ASOF LEFT JOIN COMMITTED AS s
    ON s.device = b.device AND s.transaction = b.transaction AND s.time >= b.start_ns;

CREATE TEMP TABLE ext4_sync AS
WITH calls AS (
    SELECT tid AS pid, time, time - ext4_ns(took) AS from_ns, time AS to_ns, ext4_ns(took) AS ns,
        device, inode, transaction, result, datasync
    FROM FSYNC
)
SELECT s.*, c.start_ns, c.locking_ns, c.flushing_ns, c.logging_ns, c.end_ns, c.tid AS helper,
    -- It waits for a commit that has not ended when it is called.
    coalesce(c.end_ns > s.from_ns, false) AS waited
FROM calls AS s ASOF LEFT JOIN ext4_commit AS c
    ON s.device = c.device AND s.transaction = c.transaction AND s.to_ns >= c.start_ns;

-- Waits of less than 10 us are the work itself, or an interrupt.
CREATE TEMP TABLE ext4_entry AS
SELECT tid AS pid, time, time - ext4_ns(held) - ext4_ns(waited) AS from_ns,
    time - ext4_ns(held) AS to_ns, ext4_ns(waited) AS ns, device, transaction, kind, caller_symbol
FROM HANDLE WHERE waited >= 10000;

CREATE TEMP MACRO ext4_total(x) AS least(coalesce(sum(x), 0), 9223372036854775807)::BIGINT;
