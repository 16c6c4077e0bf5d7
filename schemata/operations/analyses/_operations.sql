-- SPDX-License-Identifier: GPL-2.0-only
-- What all analyses of `operations` share: the operations, as spans.sql has made them, which is
-- done once for all; files and file systems.

-- What each file was called last.
CREATE TEMP TABLE operations_file AS
SELECT device, inode, arg_max(path, time) AS path FROM (
    SELECT time, device, inode, path FROM NAME_CALL WHERE inode > 0
    UNION ALL SELECT time, device, inode, path FROM OPEN_FILE
) GROUP BY device, inode;

CREATE TEMP TABLE operations_system AS
SELECT device, nullif(arg_max(disk, time), 0) AS disk,
    arg_max(type, time) || ' ' || disk(device) AS system
FROM FILE_SYSTEM GROUP BY device;

-- A number is the same in each analysis of a log.
CREATE TEMP VIEW operations_done AS
SELECT id, pid, from_ns, to_ns, call, device, inode, position, asked, result, path
FROM klogger.made_operation;
