-- SPDX-License-Identifier: GPL-2.0-only
-- title: CPU time lost spinning
-- question: Which part of all CPU time goes into spinning for locks of the kernel?
-- order: 20
-- events: LOCK_BEGIN, LOCK_END
-- include: _waits
-- picture: bars x=share y=lock
-- combine: sum
-- column lock: kind of lock
-- column waits [count]: waits in which there was spinning
-- column spinning [ns]: time spent spinning
-- column share [share, bar, apart]: share of the CPU time; of all CPUs, over the whole recording
-- note: Time is that of the clock. An interrupt that came while a CPU spun, and time that the host
--     of a virtual machine took, count as spinning.
-- note: Spin locks and rwlocks are what the KLogger paper's Figure 2 shows. A mutex spins as long
--     as its owner runs; that is listed apart.
-- empty: no thread had to wait for a lock while the log was recorded

CREATE TEMP TABLE spin_share AS
SELECT kind AS lock, busy, count(*) FILTER (spin_ns > 0) AS waits, sum(spin_ns) AS spinning,
       sum(spin_ns) / greatest(any_value(s.cpu_ns), 1) AS share
FROM locking, locking_span AS s GROUP BY kind, busy;

-- table
SELECT lock, waits, spinning, share FROM spin_share WHERE spinning > 0
ORDER BY busy DESC, spinning DESC, lock;

-- finding
SELECT format('{} of CPU time, {:.2g} % of all, went into spinning for spin locks and rwlocks; {} '
              '({:.2g} %) for mutexes.',
              duration(sum(spinning) FILTER (busy)), 100 * sum(share) FILTER (busy),
              duration(coalesce(sum(spinning) FILTER (NOT busy), 0)),
              100 * coalesce(sum(share) FILTER (NOT busy), 0)) AS finding,
       least(sum(share), 1) AS weight
FROM spin_share HAVING count(*) FILTER (busy) > 0;

-- warning
FROM locking_warning;
