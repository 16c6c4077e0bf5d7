-- SPDX-License-Identifier: GPL-2.0-only
-- title: Overruns
-- question: Which programs write beyond a buffer, and where was it noticed?
-- order: 10
-- events: OVERRUN
-- picture: bars x=times y=stack_shown
-- column program: program
-- column finder: which check has noticed it
-- column times [count, bar]: processes that it ended
-- column first [ns]: when it first happened
-- column stack_shown: the innermost functions of the stack; of optimised programs some are missing
-- note: Only what is checked is seen: compile with -fstack-protector-strong and
--     -D_FORTIFY_SOURCE=2. A process ends with its first overrun.
-- empty: no check has found an overrun

CREATE TEMP TABLE overruns AS
WITH seen AS (
    -- Of one overrun, the functions of the library call each other, and each is logged.
    SELECT tgid, min(time) AS time, arg_min(finder, time) AS found,
        arg_min(user_stack, time) AS deepest
    FROM OVERRUN GROUP BY tgid
)
SELECT comm(tgid, time) AS program, finder(seen.found) AS finder, count(*) AS times,
    min(time) AS first,
    coalesce(any_value(array_to_string(list_slice(k.frames, 1, 5), ' < ')), 'no stack')
        AS stack_shown
FROM seen LEFT JOIN klogger.stack AS k ON k.id = deepest AND deepest > 0 GROUP BY ALL;

-- table
SELECT program, finder, times, first, stack_shown FROM overruns ORDER BY times DESC, first;

-- picture
SELECT program || ': ' || stack_shown AS stack_shown, times FROM overruns
ORDER BY times DESC, first LIMIT 15;

-- finding
SELECT format('{} writes beyond a buffer, found by {} ({:,} times).', program, finder, times)
FROM overruns ORDER BY times DESC, first LIMIT 3;
