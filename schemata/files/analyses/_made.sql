-- SPDX-License-Identifier: GPL-2.0-only
-- files_made: one row for each call for files, with its time, result and bytes. Needs _files.

CREATE TEMP TABLE files_made AS
SELECT pid, time, call, result, took, 0 AS bytes, path FROM files_look
UNION ALL
-- sendfile and copy_file_range have two events.
SELECT pid, time, call, result, took, greatest(result, 0), NULL FROM files_use
WHERE NOT (kind = 'write' AND call IN ('sendfile', 'copy_file_range'))
UNION ALL
SELECT tid, time, name, result, took, 0, NULL FROM CLOSED JOIN files_call USING (call)
UNION ALL
SELECT tid, time, name, result, took, 0, NULL FROM COPIED JOIN files_call USING (call)
UNION ALL
SELECT tid, time, 'io_uring:' || ring_op(op), result, took, 0, NULL FROM RING
WHERE op NOT IN (1, 2, 4, 5, 18, 22, 23, 28);
