-- SPDX-License-Identifier: GPL-2.0-only
-- title: Who makes pages dirty
-- question: Which program makes pages of which file dirty, and who writes them?
-- order: 10
-- events: DIRTY_PAGES, WB_PAGES
-- include: _writeback
-- picture: bars x=pages y=what
-- column program: program
-- column file: device and path; metadata of a file system belong to its device
-- column pages [count, bar]: pages that became dirty; again, if they were written in between
-- column of_all [share]: of all pages that became dirty
-- column in_order [share]: of them, right behind the pages before, by the same thread in the same
--     file
-- column written [count]: pages of the file that were written, whoever made them dirty
-- column flusher [share]: of these, by a flusher, which works in the background or for sync()
-- column itself [share]: of these, by a thread of this program, such as in fsync()
-- column what: program and file
-- note: A page that is changed while it is dirty counts once. A folio of several pages becomes
--     dirty as a whole, so on file systems with large folios a small change may count as many.
-- note: What is written is seen when it goes to the block layer, in whole pages. Pages that were
--     encrypted, compressed or copied on their way do not belong to the file any more, nor those
--     that the journal has written.
-- empty: no page of a file became dirty by a thread in scope

CREATE TEMP TABLE dirtiers_written AS
SELECT number, sum(last - first + 1) AS pages,
    sum(last - first + 1) FILTER (via = 1) AS flusher
FROM writeback_write GROUP BY number;
-- Each beside the one before it (docs/analyses.md, Rules). It is read once, so it is a view.
CREATE TEMP VIEW dirtiers_dirtied AS
SELECT time, pid, number, pages, coalesce(index = lag(stop) OVER () OR pid <> lag(pid) OVER ()
    OR number <> lag(number) OVER (), true) AS in_order
FROM (
    SELECT time, tid AS pid, number, pages, index, index + pages AS stop FROM writeback_dirtied
    ORDER BY pid, number, time
);
CREATE TEMP VIEW dirtiers_own AS
SELECT time, tid AS pid, number, last - first + 1 AS pages FROM writeback_write
WHERE via <> 1;
CREATE TEMP TABLE dirtiers AS
WITH own AS (
    SELECT program, number, sum(pages) AS pages
    FROM with_program('dirtiers_own') GROUP BY ALL
), dirtied AS (
    SELECT program, number, sum(pages)::BIGINT AS pages,
        sum(pages) FILTER (in_order) AS in_order
    FROM with_program('dirtiers_dirtied') GROUP BY ALL
)
SELECT d.program, writeback_name(n.device, n.inode, f.path) AS file, d.pages,
    d.pages / sum(d.pages) OVER () AS of_all, coalesce(d.in_order, 0) / d.pages AS in_order,
    coalesce(w.pages, 0)::BIGINT AS written, coalesce(w.flusher, 0) / w.pages AS flusher,
    coalesce(o.pages, 0) / w.pages AS itself
FROM dirtied AS d JOIN writeback_number AS n USING (number)
LEFT JOIN writeback_file AS f USING (device, inode, life)
LEFT JOIN dirtiers_written AS w USING (number)
LEFT JOIN own AS o USING (program, number)
WHERE d.pages > 0;

-- table
FROM dirtiers ORDER BY pages DESC, program, file;

-- picture
SELECT format('{}: {}', program, file) AS what, pages FROM dirtiers
ORDER BY pages DESC, what LIMIT 20;

-- finding
WITH worst AS (
    SELECT program, sum(pages)::BIGINT AS pages, sum(of_all) AS share, count(*) AS files,
        arg_max(file, pages) AS file
    FROM dirtiers GROUP BY program ORDER BY pages DESC, program LIMIT 1
)
SELECT format('{} made {:,} pages dirty ({:.0f} % of all) in {:,} {}; most of them in {}.',
    program, pages, 100 * share, files, CASE files WHEN 1 THEN 'file' ELSE 'files' END, file)
FROM worst;
