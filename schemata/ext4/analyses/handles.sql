-- SPDX-License-Identifier: GPL-2.0-only
-- title: Who uses the journal
-- question: Which programs change the journal, for what, and how long do they wait to enter it?
-- order: 30
-- events: HANDLE, HANDLE_MORE
-- include: _ext4
-- picture: bars x=handles y=who
-- combine: sum
-- column program: program; the kernel's threads write data back
-- column device: device of the file system
-- column kind: what the handle was for
-- column caller: function of ext4 that took it
-- column handles [count, bar]: given back
-- column dirtied [count]: blocks used
-- column asked [count]: blocks reserved
-- column waited [ns]: time until they had a transaction, of all
-- column p99 [ns, 0.99 of waits]: 99 of 100 waited no longer
-- column max [ns, max]: the longest wait
-- column held [ns, 0.5 of holds]: half of them were held no longer
-- column longest [ns, max]: the longest that one was held
-- column more [count, apart]: times that such a handle had to ask for more blocks, or begin again
-- column who: program and function
-- note: A handle that is held long lets the commit wait that has locked its transaction.
-- empty: no journal was changed while the log was recorded

-- Rows and histograms are joined by the caller, which may be unknown.
CREATE TEMP VIEW handles_all AS
SELECT * REPLACE (coalesce(caller_symbol, '') AS caller_symbol), tid AS pid FROM HANDLE;
CREATE TEMP TABLE handles AS
SELECT program, device, kind, caller_symbol AS caller, count(*) AS handles,
    greatest(sum(dirtied), 0)::BIGINT AS dirtied, greatest(sum(asked), 0)::BIGINT AS asked,
    ext4_total(waited) AS waited,
    quantile_disc(waited, 0.99) AS p99, max(waited) AS max, quantile_disc(held, 0.5) AS held,
    max(held) AS longest
FROM klogger.with_program('handles_all') GROUP BY ALL;
CREATE TEMP VIEW handles_more_all AS SELECT *, tid AS pid FROM HANDLE_MORE;
CREATE TEMP TABLE handles_more AS
SELECT program, device, kind, count(*) AS more
FROM klogger.with_program('handles_more_all') GROUP BY ALL;

-- table
SELECT program, disk(device) AS device, handle_kind(kind) AS kind, caller,
    handles, dirtied, asked, waited, p99, max, held, longest, coalesce(more, 0) AS more
FROM handles LEFT JOIN handles_more USING (program, device, kind)
ORDER BY handles DESC, program, device, kind, caller;

-- picture
SELECT format('{} {}', program, coalesce(nullif(caller, ''), handle_kind(any_value(kind)))) AS who,
    sum(handles)::BIGINT AS handles
FROM handles GROUP BY program, caller ORDER BY handles DESC, who LIMIT 15;

-- finding
WITH all_of AS (SELECT sum(handles) AS n, sum(waited) AS waited FROM handles),
    most AS (
        SELECT program, sum(handles) AS handles, sum(waited) AS waited FROM handles
        GROUP BY program ORDER BY 2 DESC, program LIMIT 1
    )
SELECT format('{:,} handles of journals, {:.0f} % of them by {}; all waited {} for a transaction.',
        n::BIGINT, 100 * most.handles / n, program,
        duration(least(all_of.waited, 9223372036854775807)::BIGINT)),
    least(all_of.waited / (SELECT greatest(to_ns - from_ns, 1) FROM klogger.recording), 1) AS weight
FROM all_of, most WHERE n > 0;

-- histogram
SELECT program, disk(device) AS device, handle_kind(kind) AS kind, caller_symbol AS caller,
    klogger.histogram_of(waited) AS waits, klogger.histogram_of(held) AS holds
FROM klogger.with_program('handles_all') GROUP BY ALL;
