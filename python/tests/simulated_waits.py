# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The kinds of waits that `simulated` plays: what the kernel says of each, and what is expected of
it. The table is written by hand, not with klogger.why.waits.
"""

from __future__ import annotations

from typing import NamedTuple

CALLS = {0: "read", 1: "write", 7: "poll", 17: "pread64", 34: "pause", 35: "nanosleep",
         45: "recvfrom", 56: "clone", 61: "wait4", 62: "kill", 87: "unlink", 202: "futex",
         231: "exit_group"}  # fmt: skip
NUMBERS = {name: number for number, name in CALLS.items()}
ENTRY = ["do_syscall_64", "entry_SYSCALL_64_after_hwframe"]
STACKS = {
    1: ["__schedule", "schedule", "futex_do_wait", "__futex_wait", "do_futex", *ENTRY],
    2: ["__schedule", "schedule", "pipe_read", "vfs_read", *ENTRY],
    3: ["__schedule", "schedule", "do_nanosleep", "hrtimer_nanosleep", *ENTRY],
    4: ["__schedule", "schedule", "schedule_hrtimeout_range", "do_sys_poll", *ENTRY],
    5: ["__schedule", "schedule", "do_wait", "kernel_wait4", *ENTRY],
    6: ["__schedule", "schedule_preempt_disabled", "__mutex_lock", "vfs_unlink", *ENTRY],
    7: ["__schedule", "io_schedule", "folio_wait_bit_common", "ext4_file_read", *ENTRY],
    8: ["__schedule", "io_schedule", "folio_wait_bit_common", "filemap_fault", "__do_fault",
        "handle_mm_fault", "exc_page_fault"],
    9: ["__schedule", "schedule", "do_signal_stop", "get_signal", "exit_to_user_mode_loop"],
    10: ["__schedule", "schedule", "__x64_sys_pause", *ENTRY],
    11: ["__schedule", "schedule_timeout", "reclaim_throttle", "try_to_free_pages", *ENTRY],
    12: ["__schedule", "schedule_timeout", "__skb_wait_for_more_packets", *ENTRY],
    13: ["__schedule", "schedule", "pipe_write", "vfs_write", *ENTRY],
}  # fmt: skip
FILE, SOCKET, PIPE = 0xF11E, 0x50C, 0x9199000000000000
OBJECTS = {FILE: "/data/file", SOCKET: "socket:[7]", PIPE: "pipe:[0]", PIPE + 1: "pipe:[1]"}
# Of what wakes a thread; numbers of soft interrupts.
THREAD, TIMER, SOFT, DEVICE = 0, 1, 2, 3
NET_RX, BLOCK = 3, 4


class Kind(NamedTuple):
    """`bin`: kind and what; `slept`: the same if the wait began before the recording; `timed`: if a
    timer ended it. `follows`: whether a thread that ends it is looked at.
    """

    call: str
    stack: int
    bin: tuple[str, str]
    slept: tuple[str, str]
    follows: bool = True
    timed: tuple[str, str] | None = None
    state: int = 1
    lock: int = 0


ASKED = ("timer", "nanosleep that it asked for")
LATE_FUTEX, LATE_POLL = ("timer", "futex, ended by a timer"), ("timer", "poll, ended by a timer")
KINDS = {
    "futex": Kind("futex", 1, ("lock", "{argument:#x} (futex)"), ("lock", "not known (futex)"),
                  timed=LATE_FUTEX),
    "read": Kind("read", 2, ("pipe", "read{by}"), ("read", ""),
                 timed=("timer", "read, ended by a timer")),
    "write": Kind("write", 13, ("pipe", "write{by}"), ("write", ""),
                  timed=("timer", "write, ended by a timer")),
    "sleep": Kind("nanosleep", 3, ASKED, ASKED, follows=False, timed=ASKED),
    "poll": Kind("poll", 4, ("events", "poll{by}"), ("events", "poll{by}"), timed=LATE_POLL),
    "child": Kind("wait4", 5, ("child", "{name}"), ("child", "{name}")),
    "mutex": Kind("unlink", 6, ("kernel lock", "in vfs_unlink"), ("unlink", ""), state=2,
                  lock=0xFFFF888012345678),
    "disk": Kind("pread64", 7, ("disk", "pread64 /data/file in ext4_file_read"), ("pread64", ""),
                 follows=False, state=2),
    "fault": Kind("", 8, ("page fault from disk", "__do_fault"), ("kernel", ""), follows=False,
                  state=2),
    "stop": Kind("", 9, ("stopped", "by a signal"), ("stopped", "by a signal"), state=4),
    "pause": Kind("pause", 10, ("signal", ""), ("signal", "")),
    "reclaim": Kind("unlink", 11, ("reclaim", "of memory"), ("unlink", ""), follows=False, state=2),
    "receive": Kind("recvfrom", 12, ("socket", "recvfrom{by}"), ("recvfrom", ""),
                    timed=("timer", "recvfrom, ended by a timer")),
}  # fmt: skip


class Wait(NamedTuple):
    """`slept`: it began before the recording."""

    kind: Kind
    argument: int
    object: int
    slept: bool


def expected(
    wait: Wait, source: int | None, number: int, call: int, waker: str
) -> tuple[str, str, bool]:
    """Kind and what of its bin, and whether the thread that ended it is looked at. `source`,
    `number`, `call`, `waker`: of its wake-up; `source` None: there was none.
    """
    kind = wait.kind
    name, what = kind.slept if wait.slept else kind.bin
    # Of a call of which nothing else is known, all that a thread ends is for that thread.
    plain = wait.slept and kind.slept in ((kind.call, ""), ("kernel", ""))
    by_thread = source == THREAD
    follows = by_thread and (kind.follows or plain)
    waker_call = CALLS.get(call, "") if by_thread else ""
    # What can be interrupted, ends by a signal.
    if waker_call == "kill" and kind.state == 1:
        if kind.call == "pause":
            return "signal", f"of {waker}", True
        return "interrupted", f"{kind.call}, by a signal of {waker}", False
    if kind.call == "futex" and waker_call == "exit_group":
        name, what = "thread", "to end"
    if source == TIMER and kind.timed and not plain:
        name, what = kind.timed
    if (source, number) == (SOFT, NET_RX) and kind.call in ("poll", "recvfrom") and not plain:
        by_thread = follows = call >= 0 and CALLS[call] == "write"
        name, what = "network", kind.call + "{by}"
    waker = waker if by_thread else ""
    what = what.format(argument=wait.argument, by=f" ({waker})" if waker else "", name=waker)
    return name, what, follows
