-- SPDX-License-Identifier: GPL-2.0-only
-- What the analyses of `samples` share.
--
-- on_cpu_sample: each sample: pid, time, ns (for which it stands), user, program, path (its frames,
--   the program's name first).

CREATE TEMP VIEW on_cpu_seen AS
SELECT tid AS pid, time, period AS ns, "user", stack, user_stack FROM SAMPLED;
CREATE TEMP VIEW on_cpu_named AS FROM klogger.with_program('on_cpu_seen');
CREATE TEMP TABLE on_cpu_sample AS
SELECT pid, time, ns::BIGINT AS ns, "user", program, path FROM klogger.with_path('on_cpu_named');
