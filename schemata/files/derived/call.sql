-- SPDX-License-Identifier: GPL-2.0-only
-- title: Calls for files
-- question: Which calls for files did which thread make, when, and how long was it in them?
-- events: NAMED, LOOK, READ, WRITE, LISTED, CLOSED, COPIED, RING, DESCRIPTORS
-- include: _files, _made
-- column from_ns [ns]: when it began
-- column to_ns [ns]: when it returned
-- column took [ns]: in between
-- column pid: thread
-- column program: name of the thread when it returned
-- column call: system call; of io_uring its operation
-- column path: of calls that take one, as far as it is known
-- column result: what it returned; an error as a negative number
-- column bytes [bytes]: read, written or listed; of mmap the length that was mapped

-- table
SELECT time - files_big(took) AS from_ns, time AS to_ns, files_big(took) AS took, pid, program,
    call, path, result, bytes::BIGINT AS bytes
FROM klogger.with_program('files_made') ORDER BY from_ns, pid;
