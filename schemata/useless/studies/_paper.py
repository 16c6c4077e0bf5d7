# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The numbers of "Why Userspace Sucks - Or 101 Really Dumb Things Your App Shouldn't Do" (Dave
Jones, Linux Symposium 2006), in its first half.
"""

# stat, open, failed, exec; None: not said.
BOOT = (79576, 26769, None, 1382)
SHUTDOWN = (23246, 8724, None, None)
# `strace -c gnome-terminal`: calls, errors.
STRACE = {"stat": (7288, 10), "open": (785, 382), "read": (699, 1), "getdents": (76, 0)}
OPENS = STRACE["open"]
# The list of the dynamic ticks: owner or function, count.
TIMERS = [
    ("rh_timer_func", 52912),
    ("i8042_timer_func", 35437),
    ("cursor_timer_handler", 34096),
    ("process_timeout python", 15607),
    ("process_timeout gdmgreeter", 13269),
    ("it_real_fn Xorg", 7965),
    ("process_timeout watchdog/0", 7620),
    ("delayed_work_timer_fn", 4447),
    ("process_timeout cpuspeed", 3492),
    ("neigh_periodic_timer", 1931),
    ("wb_timer_fn", 1615),
    ("commit_timeout kjournald", 1574),
]
