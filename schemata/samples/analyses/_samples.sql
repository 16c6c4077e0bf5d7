-- SPDX-License-Identifier: GPL-2.0-only
-- What the analyses of `samples` share.
--
-- on_cpu_sample: each sample: pid, time, ns (for which it stands), user, program, path (its frames,
--   the program's name first).

CREATE TEMP VIEW on_cpu_seen AS
SELECT tid AS pid, time, period AS ns, "user", stack, user_stack FROM SAMPLED;
CREATE TEMP VIEW on_cpu_named AS FROM klogger.with_program('on_cpu_seen');
CREATE TEMP TABLE on_cpu_sample AS
-- A damaged log may have any number.
SELECT pid, time, CASE WHEN ns > 1_000_000_000_000_000_000 THEN 0 ELSE ns END::BIGINT AS ns,
    "user", program, path
FROM klogger.with_path('on_cpu_named');
