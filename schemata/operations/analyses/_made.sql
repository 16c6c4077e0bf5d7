-- SPDX-License-Identifier: GPL-2.0-only
-- Makes the operations, numbered by time, for spans.sql: `klogger.made_operation`.

-- Numbers of places, and below 0 operations of rings.
CREATE TEMP TABLE operations_place AS
SELECT call::INTEGER AS number, regexp_replace(place(call), '^.* ', '') AS name
FROM (SELECT call FROM FILE_CALL UNION SELECT call FROM NAME_CALL
    UNION SELECT call FROM STUCK_CALL)
UNION ALL
SELECT -1 - op::INTEGER, 'io_uring ' || ring_operation(op) FROM (SELECT DISTINCT op FROM RING_CALL);

-- No time that damage makes is longer than 73 years, so that a few can be added.
-- least() takes several times as long.
CREATE TEMP MACRO operations_ns(x) AS
    (CASE WHEN x <= 2305843009213693951::UBIGINT THEN x ELSE 2305843009213693951::UBIGINT END)
        ::BIGINT;
-- It is read once. Names are joined behind the window function, which sorts all columns.
CREATE TEMP VIEW operations_made AS
SELECT id, pid, from_ns, to_ns, name AS call, nullif(device, 0) AS device,
    nullif(inode, 0) AS inode, position, asked, result, path
FROM (
    SELECT *, row_number() OVER (ORDER BY from_ns, pid, to_ns, cpu, serial) AS id FROM (
        SELECT tid AS pid, time - operations_ns(took) AS from_ns, time AS to_ns,
            call::INTEGER AS number, device, inode, position, asked, result, NULL AS path, cpu,
            serial
        FROM FILE_CALL
        UNION ALL
        SELECT tid, time - operations_ns(took), time, call, device, inode, -1, 0, result, path, cpu,
            serial
        FROM NAME_CALL
        UNION ALL
        SELECT tid, time - operations_ns(took), time, -1 - op::INTEGER, device, inode, position,
            asked, result, NULL, cpu, serial
        FROM RING_CALL
        UNION ALL
        SELECT tid, time - operations_ns(took), NULL, call, device, inode, -1, 0, NULL, NULL, cpu,
            serial
        FROM STUCK_CALL
    )
) JOIN operations_place USING (number);
