-- SPDX-License-Identifier: GPL-2.0-only
-- title: File cards
-- question: How was each file used: how much, by whom, in order or at random, for how long?
-- order: 40
-- events: FILE_CALL, NAME_CALL, RING_CALL, STUCK_CALL, FILE_SYSTEM, OPEN_FILE
-- include: _operations
-- picture: bars x=bytes y=file
-- column file: path within its file system; of files opened before, as of then; else the inode
-- column system: file system, with its device
-- column bytes [bytes, bar]: read and written
-- column read [bytes]: read
-- column written [bytes]: written
-- column requests [count]: calls that read or wrote
-- column mean [bytes]: of one of these
-- column random [share]: of these, those that begin elsewhere than where the one before of the same
--   kind ended
-- column syncs [count]: fsync, fdatasync, sync_file_range
-- column readers [count]: threads that read it
-- column writers [count]: threads that wrote it
-- column took [ns]: time in all calls for it
-- column first [ns]: when the first of these began
-- column lifetime [ns]: until the last one ended
-- column size [bytes]: end of what was read and written that is furthest in the file
-- note: Calls with a position of their own and others are alike. What is done by mapping a file is
--   not seen.
-- empty: no thread in scope read or wrote a file while the log was recorded

-- What damage makes of a number is bounded here, so that two can be added.
CREATE TEMP MACRO file_cards_bounded(x) AS least(x, 4611686018427387903)::BIGINT;
CREATE TEMP VIEW file_cards_use AS
SELECT id, pid, from_ns, to_ns, device, inode, call, file_cards_bounded(position) AS position,
    CASE WHEN result > 0 THEN file_cards_bounded(result) END AS moved
FROM operations_done WHERE inode IS NOT NULL AND to_ns IS NOT NULL;
-- One pass over all of them, for the calls of each thread to each file; `reads` and `writes`: calls
-- that move data.
CREATE TEMP TABLE file_cards_part AS
SELECT *, regexp_matches(call, 'write|copy|send|splice') AND requests > 0 AS writes,
    regexp_matches(call, 'read') AND requests > 0 AND NOT writes AS reads
FROM (
    SELECT device, inode, pid, call, count(*) AS calls, count(moved) AS requests,
        sum(moved) AS moved, max(position + moved) AS size, sum(to_ns - from_ns) AS took,
        min(from_ns) AS first, max(to_ns) AS last
    FROM file_cards_use GROUP BY device, inode, pid, call
);
CREATE TEMP TABLE file_cards_random AS
SELECT device, inode, count(*) FILTER (position <> before) AS elsewhere FROM (
    SELECT device, inode, position, lag(position + moved) OVER w AS before FROM (
        SELECT id, device, inode, position, moved, writes
        FROM file_cards_use JOIN (SELECT DISTINCT call, writes FROM file_cards_part
            WHERE writes OR reads) USING (call)
        WHERE moved > 0
    ) WINDOW w AS (PARTITION BY device, inode, writes ORDER BY id)
) GROUP BY device, inode;
CREATE TEMP TABLE file_cards_sum AS
SELECT u.*, coalesce(r.elsewhere, 0) / nullif(u.requests, 0) AS random
FROM (
    SELECT device, inode, coalesce(sum(calls) FILTER (call IN ('fsync', 'fdatasync',
            'sync_file_range', 'io_uring fsync', 'io_uring sync_file_range')), 0)::BIGINT AS syncs,
        least(sum(took), 9223372036854775807)::BIGINT AS took, greatest(min(first), 0) AS first,
        max(last) - min(first) AS lifetime,
        file_cards_bounded(coalesce(sum(moved) FILTER (reads), 0)) AS read,
        file_cards_bounded(coalesce(sum(moved) FILTER (writes), 0)) AS written,
        coalesce(sum(requests) FILTER (reads OR writes), 0)::BIGINT AS requests,
        count(DISTINCT pid) FILTER (reads) AS readers,
        count(DISTINCT pid) FILTER (writes) AS writers,
        coalesce(greatest(max(size) FILTER (reads OR writes), 0), 0) AS size
    FROM file_cards_part GROUP BY device, inode
) AS u LEFT JOIN file_cards_random AS r
    ON r.device IS NOT DISTINCT FROM u.device AND r.inode = u.inode;
CREATE TEMP TABLE file_cards_card AS
SELECT coalesce(nullif(f.path, ''), format('inode {}', c.inode)) AS file,
    coalesce(s.system, CASE WHEN c.device IS NOT NULL THEN disk(c.device) ELSE '' END) AS system,
    c.*
FROM file_cards_sum AS c LEFT JOIN operations_file AS f USING (device, inode)
LEFT JOIN operations_system AS s USING (device);

-- table
SELECT file, system, read + written AS bytes, read, written, requests,
    (read + written) // greatest(requests, 1) AS mean, random, syncs, readers, writers, took, first,
    lifetime, size
FROM file_cards_card WHERE requests > 0 ORDER BY bytes DESC, file, system;

-- picture
SELECT file, least(sum(read + written), 9223372036854775807)::BIGINT AS bytes
FROM file_cards_card WHERE requests > 0 GROUP BY file ORDER BY bytes DESC, file LIMIT 20;

-- finding
SELECT format('{} has {:.0f} % of the bytes: {} KiB read, {} KiB written, {:.0f} % of its requests '
    'at random.', file,
    100.0 * (read + written) / (SELECT sum(read + written) FROM file_cards_card),
    read // 1024, written // 1024, 100 * random)
FROM file_cards_card WHERE read + written > 0 ORDER BY read + written DESC, file, system LIMIT 1;
