-- SPDX-License-Identifier: GPL-2.0-only
-- title: Spans
-- question: What did each thread wait for, or have done for it, on its way to the disk?
-- events: FILE_CALL, NAME_CALL, RING_CALL, STUCK_CALL
-- column from_ns [ns]: when it began
-- column to_ns [ns]: when it ended; NULL: it had not
-- column schema: that knows of it
-- column pid: thread; NULL: not known
-- column program: name of the thread when it began
-- column layer: system call, lock, journal, allocation, page cache, queue or device
-- column what: what it was
-- column device: of the file system, or of the disk
-- column inode: of the file; NULL: not known
-- column helper: thread that did it
-- column waits: the thread waited for it

CREATE TEMP VIEW operations_span_begun AS SELECT *, from_ns AS time FROM klogger.span;

-- table
SELECT from_ns, to_ns, schema, pid, program, layer, what, device(device) AS device, inode, helper,
    waits
FROM klogger.with_program('operations_span_begun') ORDER BY from_ns, to_ns, pid, layer, what;
