-- SPDX-License-Identifier: GPL-2.0-only
-- title: Lists of extents
-- question: Which files got many extents, and when did their lists leave the inode for a tree?
-- order: 45
-- events: XFS_EXTENT
-- include: _xfs
-- picture: bars x=extents y=inode
-- column inode: inode; its device and number
-- column changes [count]: of its list
-- column extents [count, bar, less]: in the list after the last change
-- column most [count]: at any time
-- column merged [count]: changes that made an extent longer or shorter
-- column tree: last known: tree, on the disk, or list, in the inode
-- column tree_at [count]: extents when the tree was first seen
-- column back_at [count]: extents when it was last seen to be a list again
-- column to_tree [count]: changes from list to tree
-- column to_list [count]: back
-- note: Only those that changed while they were recorded. Extents that are not yet allocated
--     (delayed) count; of a file that had some when the recording began, the number may be wrong.
-- note: The change to a tree follows that of the list: it is seen at the next change.
-- empty: no file's list of extents changed

CREATE TEMP TABLE xfs_extents_change AS
SELECT time, device, inode, tree, what, lag(tree) OVER w AS was, first_value(extents) OVER w
    + sum(CASE what WHEN 'xfs_iext_insert' THEN 1 WHEN 'xfs_iext_remove' THEN -1 ELSE 0 END) OVER w
    AS extents
FROM (SELECT * REPLACE (place(what) AS what) FROM XFS_EXTENT)
WHERE state & 256 = 0 WINDOW w AS (PARTITION BY device, inode ORDER BY time, serial ROWS UNBOUNDED
    PRECEDING);
CREATE TEMP TABLE xfs_extents AS
SELECT device, inode, count(*) AS changes, greatest(arg_max(extents, time), 0)::BIGINT AS extents,
    max(extents)::BIGINT AS most, count(*) FILTER (what = 'xfs_bmap_post_update') AS merged,
    max_by(tree, time) AS tree, min_by(extents, time) FILTER (tree AND NOT was)::BIGINT AS tree_at,
    max_by(extents, time) FILTER (NOT tree AND was)::BIGINT AS back_at,
    count(*) FILTER (tree AND NOT was) AS to_tree, count(*) FILTER (NOT tree AND was) AS to_list
FROM xfs_extents_change GROUP BY device, inode;

-- table
SELECT xfs_file(device, inode) AS inode, changes, extents, most, merged,
    CASE WHEN tree THEN 'tree' ELSE 'list' END AS tree, tree_at, back_at, to_tree, to_list
FROM xfs_extents ORDER BY most DESC, device, xfs_extents.inode LIMIT 200;

-- picture
SELECT xfs_file(device, inode) AS inode, extents FROM xfs_extents
ORDER BY most DESC, device, xfs_extents.inode LIMIT 15;

-- finding
WITH worst AS (FROM xfs_extents WHERE tree ORDER BY extents DESC, device, inode LIMIT 1)
SELECT format('File {} has {:,} extents, in a tree on the disk: it is in pieces.',
    xfs_file(device, inode), extents)
FROM worst;
