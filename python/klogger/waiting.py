# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Functions of the kernel that say that a thread waits, and not where."""

from __future__ import annotations

import re

# Of the scheduler, of locks, of pages, and those by which a thread enters the kernel.
FUNCTIONS = (
    "_*(schedule|io_schedule|preempt_schedule|wait_for_|wait_on_|out_of_line_wait|bit_wait"
    "|mutex_lock|down_|rwsem_|percpu_down|percpu_rwsem|rt_mutex|mmap_read_lock|mmap_write_lock"
    "|folio_wait|futex_do_wait|do_syscall_64|entry_|el0_|invoke_syscall|x64_sys_call)"
)
WAITING = re.compile(FUNCTIONS)
# For the frames of a stack, the innermost first: those that say where, and the first one of them.
SQL = f"""
CREATE OR REPLACE MACRO klogger.places(frames) AS
  list_filter(frames, lambda f: NOT regexp_matches(f, '^{FUNCTIONS}'));
CREATE OR REPLACE MACRO klogger.place(frames) AS coalesce(klogger.places(frames)[1], frames[1]);
"""
