-- SPDX-License-Identifier: GPL-2.0-only
-- title: Timers in vain
-- question: Which timers are armed and taken back before they fire, by function and owner?
-- order: 30
-- events: HRTIMER_FIRED, HRTIMER_VAIN, WHEEL_FIRED, WHEEL_VAIN, WHEEL_CLOCK
-- include: _timers
-- picture: stacked x=times y=what colour=end
-- combine: sum
-- column kind: what the timer is for
-- column calls: the function that it would have called; of a delayed work that of the work
-- column owner: the program that armed it
-- column armed [count]: times that such timers were armed, and came to an end
-- column vain [count, bar]: of these, taken back before they fired
-- column again [count]: of these, armed again in the same breath, for another time
-- column share [share, of armed]: part of all that was in vain
-- column early [ns, 0.5 of each]: half of them were taken back at least so long before the wanted
--     time; 0: it had passed, and they waited for more to be due, or for their turn
-- column device [count]: times that the CPU's clock event device was set for one that was in vain
-- column what: owner and function
-- column end: what became of it
-- column times [count]: timers
-- note: A time-out that never comes is no fault: most exist for what rarely happens. In vain, and
--     very often, it costs time to arm; armed again and again, the caller may do with less.
-- note: The device is set when a high-resolution timer is armed that comes before all others of its
--     CPU, as the kernel's own rule has it; setting it at the end of each timer interrupt, and when
--     the first one is taken back, is not counted.
-- empty: no timer that a recorded thread had armed came to an end while the log was recorded

CREATE TEMP TABLE timer_vain AS
WITH ended AS (
    SELECT kind, calls, owner, count(*) AS fired, 0 AS vain, 0 AS again, NULL AS early, 0 AS device
    FROM timer_fire GROUP BY ALL
    UNION ALL
    SELECT kind, calls, owner, 0, count(*), count(*) FILTER (fate = 2),
        quantile_disc(greatest(early, 0), 0.5),
        count(*) FILTER (first)
    FROM timer_back WHERE fate <> 3 GROUP BY kind, calls, owner
)
SELECT kind, calls, owner, sum(fired)::BIGINT AS fired, sum(vain)::BIGINT AS vain,
    sum(again)::BIGINT AS again, max(early) AS early, sum(device)::BIGINT AS device
FROM ended GROUP BY kind, calls, owner;

-- table
SELECT kind, calls, owner, fired + vain AS armed, vain, again, vain / (fired + vain) AS share,
    early, device
FROM timer_vain ORDER BY vain DESC, fired DESC, kind, calls, owner;

-- picture
WITH most AS (
    SELECT owner || ': ' || calls AS what, sum(fired)::BIGINT AS fired, sum(vain)::BIGINT AS vain,
        sum(again)::BIGINT AS again
    FROM timer_vain GROUP BY what ORDER BY sum(fired + vain) DESC, what LIMIT 15
)
SELECT what, u.end, u.times FROM (
    SELECT what, fired + vain AS all_times,
        unnest([{'end': 'fired', 'times': fired}, {'end': 'taken back', 'times': vain - again},
                {'end': 'armed again', 'times': again}]) AS u
    FROM most
) WHERE u.times > 0 ORDER BY all_times DESC, what, u.end;

-- finding
WITH most AS (
    SELECT owner, sum(fired + vain)::BIGINT AS armed, sum(vain)::BIGINT AS vain,
        arg_max(calls, vain) AS calls
    FROM timer_vain GROUP BY owner ORDER BY sum(vain) DESC, owner LIMIT 1
)
SELECT format('{} armed {:,} timers in vain, {:.0f} a second and {:.0f} % of its own, most of them '
              'for {}.', owner, vain, vain / (greatest(to_ns, 1) / 1e9), 100 * vain / armed, calls)
FROM most, klogger.recording WHERE vain > 0
UNION ALL
SELECT format('Of timers that were armed, {:,} were the next event of their CPU, whose clock event '
              'device was set for them: {:.0f} a second, {:.0f} % in vain.',
              device + fired, (device + fired) / (greatest(to_ns, 1) / 1e9),
              100 * device / (device + fired))
FROM (SELECT sum(device)::BIGINT AS device FROM timer_vain),
    (SELECT count(*) FILTER (first) AS fired FROM timer_fire), klogger.recording
WHERE device + fired > 0;

-- warning
FROM timer_warning;

-- samples
SELECT kind, calls, owner, time, greatest(early, 0) AS early FROM timer_back
WHERE fate <> 3 AND early IS NOT NULL;

-- histogram
SELECT kind, calls, owner, klogger.histogram_of(greatest(early, 0)) AS each
FROM timer_back WHERE fate <> 3 AND early IS NOT NULL GROUP BY ALL;
