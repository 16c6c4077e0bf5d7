-- SPDX-License-Identifier: GPL-2.0-only
-- title: Requests
-- question: Which requests did each device complete, who asked for them, how long did they take?
-- events: RQ_DONE, BIO_DONE, RQ_OPEN, RQ_ISSUE, RQ_REQUEUE
-- include: _block
-- column from_ns [ns]: when it was asked for
-- column to_ns [ns]: when it was done
-- column queued [ns]: before it was passed to the driver; NULL: a bio, of which it is not known
-- column took [ns]: in the driver and the device; 0: it was passed to it before the recording
-- column device: the whole disk
-- column kind: what was asked for
-- column name: the same, with marks: metadata, FUA, preflush, read-ahead, swap
-- column sector: first sector
-- column bytes [bytes]: of data
-- column pid: thread that asked for it; 0: nobody, as of flushes that the block layer adds
-- column program: name of the thread when it was done
-- column file_system: device of the file whose pages they are
-- column inode: of that file; 0: none
-- column status: 0: no error
-- column whole: false: another part of it is to come
-- column bio: of a device without requests, as of dm

CREATE TEMP VIEW block_request_done AS
SELECT from_ns, to_ns, to_ns AS time, issued_ns - from_ns AS queued, took, device, kind, how,
    sector, bytes, pid, file_system, inode, status, whole, false AS bio
FROM block_request
UNION ALL
SELECT from_ns, to_ns, to_ns, NULL, took, device, kind, how, sector, bytes, pid, file_system, inode,
    status, true, true
FROM block_bio;

-- table
SELECT from_ns, to_ns, queued, took, device(device) AS device, request_kind(kind) AS kind,
    block_name(kind, how) AS name, sector, bytes, pid,
    CASE WHEN pid = 0 THEN 'nobody' ELSE program END AS program,
    device(file_system) AS file_system, inode, block_status(status) AS status, whole, bio
FROM klogger.with_program('block_request_done') ORDER BY to_ns, sector;
