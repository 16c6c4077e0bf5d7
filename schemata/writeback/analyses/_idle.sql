-- SPDX-License-Identifier: GPL-2.0-only
-- What makes a file system dirty: idle_change. A mark of times only does not count (lazytime), nor
-- what threads do that write for others, nor file systems without a disk. Needs _writeback.
--
-- idle_row: the first change of each 100 ms, with `after`: how long nothing had made it dirty
-- before (NULL: the first); and the last change of these 100 ms. Before all other changes it was
-- idle for less than 100 ms: there may be millions of them, which need not be sorted.

CREATE TEMP VIEW idle_change AS
FROM (
    SELECT time, tid, device, inode, flags FROM DIRTY_INODE WHERE flags & 23 > 0
    UNION ALL SELECT time, tid, device, inode, 4 FROM DIRTY_PAGES
    UNION ALL SELECT time, tid, device, 0::UBIGINT, 4 FROM DIRTY_BUFFER
) WHERE tid NOT IN (SELECT tid FROM writeback_worker)
    AND (device >> 20 > 0 OR device IN (SELECT device FROM WB_PAGES));
CREATE TEMP TABLE idle_row AS
SELECT device, time, last, time - lag(last) OVER (PARTITION BY device ORDER BY time) AS after
FROM (
    SELECT device, min(time) AS time, max(time) AS last FROM idle_change
    GROUP BY device, time // 100000000
);
