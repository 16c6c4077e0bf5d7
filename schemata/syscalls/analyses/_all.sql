-- SPDX-License-Identifier: GPL-2.0-only
-- syscalls_made: one row for each system call that has returned: pid, time, call, result, took (0:
-- it began before the recording). syscalls_open: those that had not returned at the end.

-- Sums of damaged times are too big for an integer.
CREATE TEMP MACRO syscalls_big(x) AS least(x, 9223372036854775807)::BIGINT;
CREATE TEMP TABLE syscalls_made AS
SELECT tid AS pid, time, syscall(call) AS call, result::BIGINT AS result, took FROM (
    SELECT tid, time, call, result, took FROM CALL0
    UNION ALL SELECT tid, time, call, result, took FROM CALL1
    UNION ALL SELECT tid, time, call, result, took FROM CALL2
    UNION ALL SELECT tid, time, call, result, took FROM CALL3
    UNION ALL SELECT tid, time, call, result, took FROM CALL4
    UNION ALL SELECT tid, time, call, result, took FROM CALL5
    UNION ALL SELECT tid, time, call, result, took FROM CALL6
    UNION ALL SELECT tid, time, call, result, took FROM ON_FILE
    UNION ALL SELECT tid, time, call, result, took FROM TRANSFER
    UNION ALL SELECT tid, time, call, result, took FROM FILE_NUMBER
    UNION ALL SELECT tid, time, call, result, took FROM PASSED
    UNION ALL SELECT tid, time, call, result, took FROM SEEK
    UNION ALL SELECT tid, time, call, result, took FROM RANGE
    UNION ALL SELECT tid, time, call, result, took FROM OPENED
    UNION ALL SELECT tid, time, call, result, took FROM PATH
    UNION ALL SELECT tid, time, call, result, took FROM RIGHTS
    UNION ALL SELECT tid, time, call, result, took FROM RIGHTS_OF_FILE
    UNION ALL SELECT tid, time, call, result, took FROM RIGHTS_OF_PATH
    UNION ALL SELECT tid, time, call, result, took FROM PATHS
    UNION ALL SELECT tid, time, call, result, took FROM DUPLICATED
    UNION ALL SELECT tid, time, call, result, took FROM MADE
    UNION ALL SELECT tid, time, call, result, took FROM FCNTL
    UNION ALL SELECT tid, time, call, result, took FROM IOCTL
    UNION ALL SELECT tid, time, call, result, took FROM SOCKET
    UNION ALL SELECT tid, time, call, result, took FROM ADDRESS
    UNION ALL SELECT tid, time, call, result, took FROM MESSAGE
    UNION ALL SELECT tid, time, call, result, took FROM SOCKET_OPTION
    UNION ALL SELECT tid, time, call, result, took FROM ON_SOCKET
    UNION ALL SELECT tid, time, call, result, took FROM POLL
    UNION ALL SELECT tid, time, call, result, took FROM SELECTED
    UNION ALL SELECT tid, time, call, result, took FROM EPOLL_WAIT
    UNION ALL SELECT tid, time, call, result, took FROM EPOLL_CTL
    UNION ALL SELECT tid, time, call, result, took FROM FUTEX
    UNION ALL SELECT tid, time, call, result, took FROM SLEEP
    UNION ALL SELECT tid, time, call, result, took FROM CLOCK
    UNION ALL SELECT tid, time, call, result, took FROM SIGNAL
    UNION ALL SELECT tid, time, call, result, took FROM ACTION
    UNION ALL SELECT tid, time, call, result, took FROM CHILD
    UNION ALL SELECT tid, time, call, result, took FROM CHILD_OF_FILE
    UNION ALL SELECT tid, time, call, result, took FROM CLONE
    UNION ALL SELECT tid, time, call, result, took FROM EXECUTED
    UNION ALL SELECT tid, time, call, result, took FROM PRCTL
    UNION ALL SELECT tid, time, call, result, took FROM LIMITED
    UNION ALL SELECT tid, time, call, result, took FROM MAPPING
    UNION ALL SELECT tid, time, call, result, took FROM MEMORY
);

CREATE TEMP TABLE syscalls_open AS
SELECT tid AS pid, time, syscall(call) AS call, so_far FROM UNFINISHED;
