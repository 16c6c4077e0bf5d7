-- SPDX-License-Identifier: GPL-2.0-only
-- What all analyses of `writeback` share.
--
-- writeback_file: the path of each file that has one. A number of an inode that was deleted belongs
--   to another file afterwards: `life` is when it began to.
-- writeback_name(device, inode, path): its path, or its number; 'metadata' for that of the device.
-- writeback_number: a number for each file and `life`, below 0 for metadata: what sorts, joins or
--   counts millions of rows does so by one column.
-- writeback_dirtied, writeback_write: pages that became dirty, and bios, with this number. What
--   lies beyond the largest offset of a file, in a log that is not whole, is there.

CREATE TEMP MACRO writeback_big(x) AS
    (CASE WHEN x <= 9223372036854775807 THEN x ELSE 9223372036854775807 END)::BIGINT;
-- A page of the kernels that klogger knows.
CREATE TEMP MACRO writeback_page() AS 4096;
CREATE TEMP TABLE writeback_gone AS SELECT device, inode, time FROM DIRTY_GONE WHERE deleted;
CREATE TEMP TABLE writeback_file AS
SELECT f.device, f.inode, coalesce(g.time, -1) AS life, arg_max(f.path, f.time) AS path
FROM DIRTY_FILE AS f ASOF LEFT JOIN writeback_gone AS g
    ON g.device = f.device AND g.inode = f.inode AND f.time >= g.time GROUP BY ALL;
CREATE TEMP MACRO writeback_name(of_device, of_inode, path) AS CASE
    WHEN of_inode = 0 THEN format('metadata of {}', disk(of_device))
    WHEN path IS NULL OR path = '' THEN format('inode {} of {}', of_inode, disk(of_device))
    ELSE format('{}:{}', disk(of_device), path) END;
-- Threads that write for others: what they make dirty is part of writing. Programs may have such
-- names as well. Logs of before do not say which thread is one of the kernel: there names decide.
CREATE TEMP MACRO writeback_of_kernel(source) AS TABLE
    FROM query_table(source) UNION ALL BY NAME SELECT NULL::BOOLEAN AS kernel WHERE false;
CREATE TEMP TABLE writeback_worker AS
SELECT DISTINCT tid FROM WB_ROUND
UNION SELECT pid FROM klogger.thread
WHERE (starts_with(comm, 'jbd2/') OR starts_with(comm, 'kworker/'))
    AND pid IN (
        SELECT tid FROM (
            SELECT tid, kernel FROM writeback_of_kernel('DIRTY_PAGES')
            UNION ALL SELECT tid, kernel FROM writeback_of_kernel('DIRTY_INODE')
            UNION ALL SELECT tid, kernel FROM writeback_of_kernel('DIRTY_BUFFER')
        ) WHERE kernel IS DISTINCT FROM false
    );
CREATE TEMP TABLE writeback_number AS
SELECT (CASE inode WHEN 0 THEN -1 ELSE 1 END * row_number() OVER ())::INTEGER AS number, device,
    inode, life
FROM (
    SELECT device, inode, -1::BIGINT AS life FROM DIRTY_PAGES
    UNION SELECT device, inode, -1 FROM WB_PAGES UNION FROM writeback_gone
);
-- The rows of a view, with their number. Few inodes are deleted: the others need no join by time.
CREATE TEMP MACRO writeback_numbered(source) AS TABLE
    SELECT s.* EXCLUDE (device, inode), n.number FROM query_table(source) AS s
    JOIN (FROM writeback_number ANTI JOIN writeback_gone USING (device, inode)) AS n
        USING (device, inode)
    UNION ALL
    SELECT s.* EXCLUDE (device, inode), n.number
    FROM (FROM query_table(source) SEMI JOIN writeback_gone USING (device, inode)) AS s
    ASOF LEFT JOIN writeback_number AS n
        ON n.device = s.device AND n.inode = s.inode AND s.time >= n.life;
CREATE TEMP VIEW writeback_dirtied_all AS
SELECT time, tid, device, inode, pages,
    CASE WHEN index <= 2251799813685247 THEN index ELSE 2251799813685247 END AS index
FROM DIRTY_PAGES;
CREATE TEMP TABLE writeback_dirtied AS FROM writeback_numbered('writeback_dirtied_all');
CREATE TEMP VIEW writeback_write_all AS
SELECT time, tid, device, inode, position, bytes, via, reason
FROM (
    SELECT * REPLACE (CASE WHEN position <= 9223372036854775807 THEN position
        ELSE 9223372036854775807 END AS position) FROM WB_PAGES
);
CREATE TEMP TABLE writeback_bio AS FROM writeback_numbered('writeback_write_all');
CREATE TEMP VIEW writeback_write AS
SELECT *, position // writeback_page() AS first,
    (position + greatest(bytes, 1) - 1) // writeback_page() AS last
FROM writeback_bio;
