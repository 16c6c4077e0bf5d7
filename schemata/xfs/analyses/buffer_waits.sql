-- SPDX-License-Identifier: GPL-2.0-only
-- title: Waits for metadata
-- question: Which programs waited for buffers of metadata, for the disk or for who had them locked?
-- order: 35
-- events: BUFFER_WAITED, BUFFER_IO
-- include: _xfs
-- picture: stacked x=waited y=program colour=why
-- combine: sum
-- column program: program
-- column why: waits for; disk: it was read or written; lock: another thread had it
-- column caller [most]: function that waited most often
-- column waits [count]: waits that ended
-- column waited [ns, bar, less]: time in them
-- column p50 [ns, 0.5 of each]: half of them took no longer
-- column max [ns, max]: the longest
-- column busiest [most]: device and sector of the buffer that was waited for longest in all
-- note: Waits for a lock of less than the parameter 'least' (10 us) are left out, and none of those
--     that had not ended is known.
-- empty: no thread waited for a buffer of metadata

CREATE TEMP TABLE buffer_waits AS
SELECT tid AS pid, time, device, sector, xfs_ns(took) AS ns, caller_symbol AS caller, 'lock' AS why
FROM BUFFER_WAITED
UNION ALL SELECT tid, time, device, sector, xfs_ns(took), caller_symbol, 'disk' FROM BUFFER_IO;
CREATE TEMP TABLE buffer_waits_by AS
WITH one AS (
    SELECT program, why, device, sector, mode(caller) AS caller, count(*) AS waits,
        xfs_ns(sum(ns)) AS waited, list(ns) AS all_ns
    FROM with_program('buffer_waits') GROUP BY ALL
)
SELECT program, why, max_by(caller, waits) AS caller, xfs_ns(sum(waits)) AS waits,
    xfs_ns(sum(waited)) AS waited, flatten(list(all_ns)) AS all_ns,
    max_by(format('{} {}', disk(device), sector), waited) AS busiest
FROM one GROUP BY program, why;

-- table
SELECT program, why, caller, waits, waited, list_sort(all_ns)[(len(all_ns) + 1) // 2] AS p50,
    list_max(all_ns) AS max, busiest
FROM buffer_waits_by ORDER BY waited DESC, program, why LIMIT 200;

-- picture
WITH top AS (SELECT program, sum(waited) AS all_waited FROM buffer_waits_by GROUP BY 1
             ORDER BY 2 DESC, 1 LIMIT 15)
SELECT program, why, waited FROM buffer_waits_by JOIN top USING (program)
ORDER BY all_waited DESC, program, why;

-- finding
WITH worst AS (FROM buffer_waits_by ORDER BY waited DESC, program, why LIMIT 1)
SELECT format('{} waited {} for buffers of metadata {}, {:,} times, most for {}.', program,
    duration(waited), CASE why WHEN 'lock' THEN 'that another thread had locked'
        ELSE 'from the disk' END, waits, busiest),
    least(waited / greatest((SELECT to_ns FROM klogger.recording), 1), 1) AS weight
FROM worst;

-- histogram
SELECT program, why, klogger.histogram_of(ns) AS each
FROM klogger.with_program('buffer_waits') GROUP BY ALL;
