-- SPDX-License-Identifier: GPL-2.0-only
-- title: Checkpoints
-- question: Is the journal ever full, and who has to write what it holds to its place?
-- order: 70
-- events: CHECKPOINT, CHECKPOINTED, LOG_TAIL
-- picture: bars x=blocks y=who
-- combine: sum
-- column device: device of the file system
-- column program: program that did it; all but the journal's own thread did so for want of space
-- column checkpoints [count]: begun, because the journal was full
-- column transactions [count]: whose account was closed: all of them is in its place
-- column written [count, bar]: blocks that this thread had to write
-- column dropped [count]: blocks that had been written in the meantime
-- column forced [count]: transactions that had to be closed for it
-- column tails [count]: times that the beginning of the journal moved
-- column freed [count]: blocks of the journal that became free
-- column who: program and device
-- column blocks [count]: written and dropped
-- note: Threads that begin a checkpoint do not change the file system before it is done.
-- empty: nothing was written to its place, as when the journal is large or the recording short

CREATE TEMP VIEW checkpoints_all AS
SELECT tid AS pid, time, device, 1 AS begun, 0 AS closed, 0::UINTEGER AS written,
    0::UINTEGER AS dropped, 0::UINTEGER AS forced, 0 AS tails, 0::UBIGINT AS freed FROM CHECKPOINT
UNION ALL SELECT tid, time, device, 0, 1, written, dropped, forced, 0, 0 FROM CHECKPOINTED
UNION ALL SELECT tid, time, device, 0, 0, 0, 0, 0, 1, freed FROM LOG_TAIL;
CREATE TEMP TABLE checkpoints AS
SELECT device, program, sum(begun)::BIGINT AS checkpoints, sum(closed)::BIGINT AS transactions,
    sum(written)::BIGINT AS written, sum(dropped)::BIGINT AS dropped,
    sum(forced)::BIGINT AS forced, sum(tails)::BIGINT AS tails,
    least(sum(freed), 9223372036854775807)::BIGINT AS freed
FROM klogger.with_program('checkpoints_all') GROUP BY device, program;

-- table
SELECT disk(device) AS device, * EXCLUDE (device) FROM checkpoints
ORDER BY checkpoints DESC, written DESC, transactions DESC, device, program;

-- picture
SELECT format('{} {}', program, disk(device)) AS who, written + dropped AS blocks FROM checkpoints
ORDER BY blocks DESC, who LIMIT 15;

-- finding
WITH all_of AS (
    SELECT device, sum(checkpoints)::BIGINT AS n, sum(written)::BIGINT AS written,
        max({'n': checkpoints, 'program': program}).program AS program
    FROM checkpoints GROUP BY device HAVING sum(checkpoints) > 0 ORDER BY 2 DESC, device LIMIT 1
)
SELECT format('The journal of {} was full {:,} {}, and {:,} blocks had to be written to their'
        || ' place first, mostly by {}; a larger journal helps.', disk(device), n,
        CASE n WHEN 1 THEN 'time' ELSE 'times' END, written, program) FROM all_of;
