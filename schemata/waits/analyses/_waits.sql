-- SPDX-License-Identifier: GPL-2.0-only
-- What the analyses of `waits` share.
--
-- wait: each wait that began and ended in the log: pid, time (its end), from_ns, woken_ns, to_ns
--   (when the thread ran again), call, place (in the kernel, without the frames that all waits
--   have), stack, user_stack, waker, source.

CREATE TEMP VIEW wait_step AS
SELECT pid, time, 'blocked' AS kind, call, stack, user_stack, 0 AS waker, NULL AS source
FROM BLOCKED WHERE state & 128 = 0
UNION ALL SELECT pid, time, 'woken', NULL, NULL, NULL, waker, source FROM WOKEN
UNION ALL SELECT pid, time, 'back', NULL, NULL, NULL, 0, NULL FROM BACK;

-- A wake-up that comes while the thread is still on its way to wait ends no wait that is seen.
CREATE TEMP TABLE wait_seen AS
SELECT pid, NULL AS place, time AS from_ns, woken_ns, to_ns, call, stack, user_stack, waker, source
FROM (
    SELECT *, lead(kind) OVER w AS next_kind, lead(time) OVER w AS woken_ns,
        lead(waker) OVER w AS next_waker, lead(source) OVER w AS next_source,
        lead(kind, 2) OVER w AS last_kind, lead(time, 2) OVER w AS to_ns
    FROM wait_step WINDOW w AS (PARTITION BY pid ORDER BY time, kind DESC)
) AS step (pid, time, kind, call, stack, user_stack, own_waker, own_source, next_kind, woken_ns,
    waker, source, last_kind, to_ns)
WHERE kind = 'blocked' AND next_kind = 'woken' AND last_kind = 'back';

CREATE TEMP TABLE wait_place AS
SELECT id, klogger.place(frames) AS site FROM klogger.stack WHERE kind = 'kernel';

CREATE TEMP TABLE wait AS
SELECT w.pid, w.to_ns AS time, w.from_ns, w.woken_ns, w.to_ns, w.call, p.site, w.stack,
    w.user_stack, w.waker, w.source
FROM klogger.broken('wait_seen', ['BLOCKED', 'WOKEN', 'BACK']) AS w
LEFT JOIN wait_place AS p ON p.id = w.stack
WHERE NOT w.broken;
DROP TABLE wait_seen;
