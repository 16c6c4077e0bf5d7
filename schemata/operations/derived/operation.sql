-- SPDX-License-Identifier: GPL-2.0-only
-- title: Operations
-- question: Which operations on files did which thread make, when, and how long did they take?
-- events: FILE_CALL, NAME_CALL, RING_CALL, STUCK_CALL, FILE_SYSTEM, OPEN_FILE
-- include: _operations
-- column id: number of the operation in its log, for klogger report --operation
-- column from_ns [ns]: when it began
-- column to_ns [ns]: when it returned; NULL: it had not
-- column pid: thread
-- column program: name of the thread when it began
-- column call: system call; of io_uring its operation
-- column device: of the file system; NULL: not known
-- column disk: of a file system that has a device of its own, such as btrfs
-- column inode: of the file; NULL: not known
-- column path: as the program gave it, or what the file was called last; NULL: not known
-- column position: in the file; -1: it has none
-- column asked: bytes
-- column result: bytes, or an error as a negative number; NULL: it had not returned

CREATE TEMP VIEW operations_operation_begun AS
SELECT o.*, f.path AS called, s.disk, o.from_ns AS time
FROM operations_done AS o LEFT JOIN operations_file AS f USING (device, inode)
LEFT JOIN operations_system AS s USING (device);

-- table
SELECT id, from_ns, to_ns, pid, program, call, device(device) AS device, device(disk) AS disk,
    inode, coalesce(path, called) AS path, position, asked, result
FROM klogger.with_program('operations_operation_begun') ORDER BY id;
