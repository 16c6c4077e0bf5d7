-- SPDX-License-Identifier: GPL-2.0-only
-- The operations themselves: `klogger.operation`, and in `klogger.span` the layer 'system call'.
-- include: _made, _operations

-- The disk of most file systems is their device; btrfs has one of its own.
-- operations_file is that of the analyses.
CREATE TEMP VIEW operations_operation AS
SELECT o.id, o.pid, o.from_ns, o.to_ns, o.call, o.device, s.disk, o.inode, o.position, o.asked,
    o.result, o.path
FROM operations_made AS o LEFT JOIN operations_system AS s USING (device);
