-- SPDX-License-Identifier: GPL-2.0-only
-- title: Who cuts quanta short
-- question: When a thread is preempted, who gets its CPU?
-- order: 20
-- events: SCHEDIN, SCHEDOUT
-- include: _quantum
-- picture: matrix x=next_shown y=program_shown size=times
-- combine: sum
-- column program: the thread that was preempted, or yielded
-- column cut_by: the thread that ran next on its CPU
-- column times [count, bar]: how often
-- column per_second [per_s, times/seconds]: how often in each second of the log
-- column part [share, apart]: of the preemptions of this program
-- column p50_before [ns, apart]: half of the quanta that were cut had lasted less than this
-- column kept_off [ns, apart]: time until the threads that were cut had a CPU again, all together,
--     where the log has it
-- column program_shown: preempted
-- column next_shown: ran next
-- note: A thread that yields its CPU while it could go on is counted here too: the kernel reports
--     both in the same way.
-- note: A thread that was not recorded (outside the workload) is shown by its number; 0 is idle.
-- empty: no thread lost its CPU while it could have gone on

-- If the thread left a CPU once more before it is seen to have one again, then it was back unseen,
-- and it is not known when. Nor is it known where the clocks of two CPUs disagree, so that it would
-- be back before it left.
CREATE TEMP TABLE cut AS
WITH again AS (
    SELECT *, lead(from_ns) OVER (PARTITION BY pid ORDER BY from_ns, to_ns) AS again FROM quantum
), left_again AS (
    SELECT pid, time, lead(time) OVER (PARTITION BY pid ORDER BY time) AS left_ns
    FROM SCHEDOUT SEMI JOIN quantum_gap USING (pid)
)
SELECT a.next AS pid, a.to_ns AS time, a.program AS cut, a.from_ns,
       CASE WHEN a.again >= a.to_ns AND coalesce(l.left_ns > a.again,
           true) THEN a.again - a.to_ns END AS kept_off
FROM again AS a LEFT JOIN left_again AS l ON a.pid = l.pid AND a.to_ns = l.time WHERE a.state = 0;
CREATE TEMP TABLE cut_pair AS
SELECT cut AS program, program AS cut_by, count(*) AS times,
    quantile_disc(time - from_ns, 0.5) AS p50_before,
       coalesce(sum(kept_off), 0)::BIGINT AS kept_off,
       bool_and(pid IN (SELECT pid FROM klogger.recorder)) AS recorder
FROM klogger.with_program('cut') GROUP BY program, cut;
CREATE TEMP VIEW cut_shown AS
SELECT program, CASE WHEN row_number() OVER (ORDER BY sum(times) DESC, program) <= 11 THEN program
    ELSE 'other' END AS shown
FROM (SELECT cut_by AS program, times FROM cut_pair UNION ALL SELECT program, times FROM cut_pair)
GROUP BY program;

-- table
SELECT program, cut_by, times,
       times / (SELECT greatest(to_ns - from_ns, 1) / 1e9 FROM klogger.recording) AS per_second,
       times / sum(times) OVER (PARTITION BY program) AS part, p50_before, kept_off
FROM cut_pair ORDER BY times DESC, program, cut_by;

-- picture
SELECT a.shown AS program_shown, b.shown AS next_shown, sum(times)::BIGINT AS times
FROM cut_pair AS c JOIN cut_shown AS a ON c.program = a.program
JOIN cut_shown AS b ON c.cut_by = b.program
GROUP BY ALL ORDER BY times DESC;

-- finding
-- A few short cuts are usual. What is named klogger is a command before its exec. The weight is the
-- part of the recorded time that the program had no CPU after it lost it to the one after whom that
-- was longest. Others may have run in that time: the finding does not say who kept it waiting.
WITH total AS (
    SELECT program, sum(times)::BIGINT AS total, sum(kept_off) AS kept FROM cut_pair
    WHERE program <> 'klogger' GROUP BY program
), often AS (
    SELECT program, cut_by, times, kept_off FROM cut_pair WHERE NOT recorder
    QUALIFY row_number() OVER (PARTITION BY program ORDER BY times DESC, kept_off DESC, cut_by) = 1
), longest AS (
    SELECT program, cut_by AS worst, times AS worst_times, kept_off AS most FROM cut_pair
    WHERE NOT recorder
    QUALIFY row_number() OVER (PARTITION BY program ORDER BY kept_off DESC, times DESC, cut_by) = 1
)
SELECT format('{}, which had the most CPU time of all that were preempted, lost its CPU {:,} '
              'times, {:.0f} % of these to {} ({:.1f} a second), and was without a CPU for {} '
              'after these',
              program, total, 100 * times / total, cut_by, times * 1e9 / greatest(r.to_ns, 1),
              duration(kept_off))
       || CASE WHEN most > kept_off
               THEN format('; for longest, {}, after the {:,} to {}', duration(most),
                   worst_times, worst) ELSE '' END
       || CASE WHEN regexp_matches(cut_by, '^thread [0-9]+$') OR most > kept_off
           AND regexp_matches(worst, '^thread [0-9]+$')
               THEN '. Record with -a to see the names of all threads.' ELSE '.' END,
       most / greatest(r.to_ns, 1) AS weight
FROM total JOIN often USING (program) JOIN longest USING (program)
JOIN quantum_program USING (program), klogger.recording AS r
WHERE total >= 10 OR total > 1 AND kept >= 0.01 * r.to_ns
ORDER BY ns DESC, program LIMIT 1;

-- warning
FROM quantum_warning;
