-- SPDX-License-Identifier: GPL-2.0-only
-- title: Cold files
-- question: Which files had to be read from the device, because they were not in memory?
-- order: 30
-- events: FILLED, NAMED, COPIED, RING, DESCRIPTORS
-- include: ../../files/analyses/_files
-- picture: bars x=bytes y=file
-- combine: sum
-- column file: path, or device and number if the log has no name for it
-- column first [ns, apart]: when the first page was missing
-- column bytes [bytes, bar]: pages that were filled
-- column processes [count, apart]: that needed some
-- note: In this order, a list for reading ahead. New pages of files that are written count as well.
-- empty: all pages that were needed were in memory

CREATE TEMP TABLE cold AS
SELECT coalesce(any_value(n.path), format('{} {}', disk(f.device), f.inode)) AS file,
    min(f.time) AS first, 4096 * count(DISTINCT (f.time, f.page)) AS bytes,
    count(DISTINCT f.tgid) AS processes
FROM FILLED AS f LEFT JOIN (
    SELECT device, inode, min(path) AS path FROM files_look WHERE inode > 0 AND path IS NOT NULL
    GROUP BY ALL
) AS n ON n.device = f.device AND n.inode = f.inode
GROUP BY f.device, f.inode;

-- table
FROM cold ORDER BY first, file;

-- picture
SELECT file, bytes FROM cold ORDER BY bytes DESC, file LIMIT 20;

-- finding
SELECT format('{:,} files had pages that were not in memory, most of {}.', count(*),
    arg_max(file, bytes))
FROM cold HAVING count(*) > 0;
