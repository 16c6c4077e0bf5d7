-- SPDX-License-Identifier: GPL-2.0-only
-- call: one row for each system call of a thread: pid, from_ns, time (of its return), id, ret, and
-- ns: how long it was in it, without what logging took. call_seen also has those that are left out.

-- A thread makes one call at a time.
CREATE TEMP VIEW call_begin AS SELECT pid AS key, id AS who, time, NULL AS begun FROM SYS_IN;
CREATE TEMP VIEW call_end AS SELECT pid AS key, id AS who, time, ret AS ended FROM SYS_OUT;
CREATE TEMP TABLE call_pair AS
SELECT key AS pid, NULL AS place, who AS id, from_ns, to_ns, ended AS ret, outside
FROM klogger.pairs('call_begin', 'call_end');
CREATE TEMP TABLE call_seen AS FROM klogger.broken('call_pair', ['SYS_IN', 'SYS_OUT']);
CREATE TEMP TABLE call AS
SELECT pid, from_ns, to_ns AS time, id, ret, to_ns - from_ns - cost_of('SYS_IN') AS ns
FROM call_seen
WHERE from_ns IS NOT NULL AND to_ns IS NOT NULL AND NOT broken;
DROP TABLE call_pair;
