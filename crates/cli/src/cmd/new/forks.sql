-- SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
-- title: Forks
-- question: Which programs make how many processes and threads?
-- events: @EVENT@
-- picture: bars x=forks y=program
-- column program: program; the name of the thread that made them
-- column forks [count, bar]: processes and threads made
-- column part [share]: part of all
-- empty: nothing was forked while the log was recorded

-- table
SELECT comm(parent, time) AS program, count(*) AS forks,
       count(*) / sum(count(*)) OVER () AS part
FROM @EVENT@ GROUP BY program ORDER BY forks DESC, program;

-- finding
SELECT format('{} made {} of {} processes and threads.', program, forks, forks_of_all) AS text,
       0.0 AS weight
FROM (SELECT comm(parent, time) AS program, count(*) AS forks,
             sum(count(*)) OVER ()::BIGINT AS forks_of_all
      FROM @EVENT@ GROUP BY program ORDER BY forks DESC, program LIMIT 1);
