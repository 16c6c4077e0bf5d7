-- SPDX-License-Identifier: GPL-2.0-only
-- title: Signals
-- question: Who sends which signals to whom, and what becomes of them?
-- order: 40
-- events: SIGNALLED
-- picture: bars x=times y=who
-- combine: sum
-- column sender: program of the thread that was running when it was sent; timer: of no thread
-- column receiver: program
-- column signal: signal
-- column times [count, bar]: how often
-- column queued [count]: that were queued for the receiver
-- column ignored [count]: that it ignores
-- column merged [count]: that were pending already
-- column from_kernel [count]: sent by the kernel, such as for a fault or the end of a child
-- column who: sender, receiver and signal
-- empty: no thread in scope sent or got a signal

-- SI_TIMER, and what interval timers send, is of no thread.
CREATE TEMP TABLE signals_sent AS
SELECT CASE WHEN code = -2 OR (code = 128 AND sig IN (14, 26, 27)) THEN 'timer'
        ELSE comm(sender, time) END AS sender,
    comm(pid, time) AS receiver, signal(sig) AS signal, result, code
FROM SIGNALLED;
CREATE TEMP TABLE signals_of AS
SELECT sender, receiver, signal, count(*) AS times, count(*) FILTER (result = 0) AS queued,
    count(*) FILTER (result = 1) AS ignored, count(*) FILTER (result = 2) AS merged,
    count(*) FILTER (code > 0) AS from_kernel
FROM signals_sent GROUP BY ALL;

-- table
FROM signals_of ORDER BY times DESC, signal, sender, receiver;

-- picture
SELECT format('{}: {} to {}', signal, sender, receiver) AS who, times FROM signals_of
ORDER BY times DESC, who LIMIT 15;

-- finding
SELECT format('{:,} signals, most of them {} of {} to {} ({:,}).', sum(times)::BIGINT,
    arg_max(signal, times), arg_max(sender, times), arg_max(receiver, times), max(times))
FROM signals_of HAVING count(*) > 0;
