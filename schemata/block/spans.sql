-- SPDX-License-Identifier: GPL-2.0-only
-- include: _block

-- Each request in the queue and in the device, of the thread that asked for it.
CREATE TEMP VIEW block_span AS
SELECT CASE WHEN pid > 0 THEN pid END AS pid, from_ns, to_ns, layer, request_kind(kind) AS what,
    device, nullif(inode, 0)::UBIGINT AS inode, NULL::INTEGER AS helper, false AS waits,
    nullif(bytes, 0) AS bytes, sector
FROM (
    SELECT pid, from_ns, issued_ns AS to_ns, 'queue' AS layer, kind, device, inode, bytes, sector
    FROM block_request WHERE took > 0 AND queued > 0
    UNION ALL
    SELECT pid, issued_ns, to_ns, 'device', kind, device, inode, bytes, sector
    FROM block_request WHERE took > 0
    UNION ALL
    SELECT pid, from_ns, to_ns, 'device', kind, device, inode, bytes, sector FROM block_bio
    UNION ALL
    -- Those that are not done within the log: issued, and neither done nor put back since.
    SELECT pid, from_ns, NULL, 'device', kind, device, 0, bytes, sector FROM block_open
);
