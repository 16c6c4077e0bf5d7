# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The kinds of waits that `simulated` plays: what the kernel says of each, and what is expected of
it. The table is written by hand, not with klogger.why.waits.
"""

from __future__ import annotations

from typing import NamedTuple

CALLS = {0: "read", 1: "write", 7: "poll", 17: "pread64", 18: "pwrite64", 34: "pause",
         35: "nanosleep", 45: "recvfrom", 56: "clone", 61: "wait4", 62: "kill", 74: "fsync",
         87: "unlink", 202: "futex", 208: "io_getevents", 231: "exit_group"}  # fmt: skip
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
    14: ["__schedule", "io_schedule", "folio_wait_writeback", "ext4_sync_file", *ENTRY],
    15: ["__schedule", "schedule", "io_schedule", "__iomap_dio_rw", "ext4_file_read", *ENTRY],
    16: ["__schedule", "io_schedule", "blk_mq_get_tag", "__blk_mq_alloc_requests", *ENTRY],
    17: ["__schedule", "io_schedule", "rq_qos_wait", "wbt_wait", "__rq_qos_throttle", *ENTRY],
    18: ["__schedule", "schedule", "read_events", "do_io_getevents", *ENTRY],
}  # fmt: skip
FILE, OTHER, SOCKET, PIPE = 0xF11E, 0xF12E, 0x50C, 0x9199000000000000
FILE_SYSTEM = 0x700001
# Device and inode of files.
INODES = {FILE: (FILE_SYSTEM, 11), OTHER: (FILE_SYSTEM, 12)}
OBJECTS = {
    FILE: "/data/file",
    OTHER: "/data/other",
    SOCKET: "socket:[7]",
    PIPE: "pipe:[0]",
    PIPE + 1: "pipe:[1]",
}
# Of what wakes a thread; numbers of soft interrupts.
THREAD, TIMER, SOFT, DEVICE = 0, 1, 2, 3
NET_RX, BLOCK = 3, 4


class Kind(NamedTuple):
    """`bin`: kind and what; `slept`: the same if the wait began before the recording; `timed`: if a
    timer ended it. `follows`: whether a thread that ends it is looked at. `pages`: a request for
    the same file may be what it is for. `stage`: of a device, before one can ask it.
    """

    call: str
    stack: int
    bin: tuple[str, str]
    slept: tuple[str, str]
    follows: bool = True
    timed: tuple[str, str] | None = None
    state: int = 1
    lock: int = 0
    pages: bool = False
    stage: str = ""


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
    "disk": Kind("pread64", 7, ("disk", "pread64 {file} in ext4_file_read"), ("pread64", ""),
                 state=2, pages=True),
    "fault": Kind("", 8, ("page fault from disk", "filemap_fault"), ("kernel", ""), state=2,
                  pages=True),
    "fsync": Kind("fsync", 14, ("disk", "fsync {file} in ext4_sync_file"), ("fsync", ""), state=2,
                  pages=True),
    "direct": Kind("pread64", 15, ("disk", "pread64 {file} in __iomap_dio_rw"), ("pread64", ""),
                   state=2),
    "full": Kind("pwrite64", 16, ("disk", "pwrite64 {file} in blk_mq_get_tag"), ("pwrite64", ""),
                 state=2, stage="for a free request of {}"),
    "throttle": Kind("pwrite64", 17, ("disk", "pwrite64 {file} in rq_qos_wait"), ("pwrite64", ""),
                     state=2, stage="throttled on {}"),
    "events": Kind("io_getevents", 18, ("io_getevents", "read_events"), ("io_getevents", "")),
    "stop": Kind("", 9, ("stopped", "by a signal"), ("stopped", "by a signal"), state=4),
    "pause": Kind("pause", 10, ("signal", ""), ("signal", "")),
    "reclaim": Kind("unlink", 11, ("reclaim", "of memory"), ("unlink", ""), follows=False, state=2),
    "receive": Kind("recvfrom", 12, ("socket", "recvfrom{by}"), ("recvfrom", ""),
                    timed=("timer", "recvfrom, ended by a timer")),
}  # fmt: skip


# In what a bin is, before the number of a pipe: who is at the other end is known at the end.
HOLDER = " of whoever has pipe "


class Wait(NamedTuple):
    """`slept`: it began before the recording."""

    kind: Kind
    argument: int
    object: int
    slept: bool


def expected(
    wait: Wait, source: int | None, number: int, call: int, waker: str, request: bool = False
) -> tuple[str, str, bool]:
    """Kind and what of its bin, and whether the thread that ended it is looked at. `source`,
    `number`, `call`, `waker`, `request`: of its wake-up; `source` None: there was none.
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
    if request and kind.call == "io_getevents":
        name, what = "disk", "io_getevents" if wait.slept else "io_getevents in read_events"
    waker = waker if by_thread else ""
    file = OBJECTS.get(wait.object, "")
    by = f" ({waker})" if waker else f"{HOLDER}{wait.object}" if name == "pipe" else ""
    what = what.format(file=file, argument=wait.argument, by=by, name=waker)
    return name, what, follows
