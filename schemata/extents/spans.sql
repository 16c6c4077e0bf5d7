-- SPDX-License-Identifier: GPL-2.0-only
-- The events have no durations: no spans.

CREATE TEMP VIEW extents_span AS
SELECT NULL::INTEGER AS pid, 0::BIGINT AS from_ns, NULL::BIGINT AS to_ns, 'allocation' AS layer,
    '' AS what, NULL::UINTEGER AS device, NULL::UBIGINT AS inode, NULL::INTEGER AS helper,
    false AS waits
WHERE false;
