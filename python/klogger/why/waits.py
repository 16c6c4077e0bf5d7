# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What a thread waited for, from the event with which its wait began, and from what ended it."""

from __future__ import annotations

import re
from typing import NamedTuple

from klogger.waiting import WAITING
from klogger.why.bins import WAITED
from klogger.why.ends import WRITES
from klogger.why.events import IN_FAULT, Events
from klogger.why.sockets import DELAYED_OTHER, DELAYED_OWN, RETRANSMITTED

# In `BLOCKED.state`.
STOPPED, TRACED, FROZEN = 0x4, 0x8, 0x8000
UNINTERRUPTIBLE, KILLABLE = 0x2, 0x100
# In `WOKEN.source`.
THREAD, TIMER, SOFT, DEVICE = 0, 1, 2, 3
NET_RX = 3

DISK = re.compile(
    r"_*(io_schedule|folio_wait|wait_on_buffer|submit_bio_wait|wb_wait_for|blk_mq_get_tag"
    r"|blk_execute_rq|jbd2_log_wait|bit_wait_io|balance_dirty_pages|xlog_wait|rq_qos_wait)"
)
RECLAIM = re.compile(r"_*(try_to_free_pages|try_to_free_mem_cgroup|mem_cgroup_handle_over_high"
                     r"|reclaim_throttle|shrink_node|do_try_to_free_pages)")  # fmt: skip
FAULT = re.compile(r"_*(handle_mm_fault|exc_page_fault|do_user_addr_fault|do_page_fault)")
LOCK = re.compile(r"_*(mutex_lock|down_|rwsem_down|percpu_down|percpu_rwsem|rt_mutex|down$)")
ARCHITECTURE = re.compile(r"_*(x64|ia32|arm64|se|do)_(compat_)?sys_|__do_sys_")

FUTEX = re.compile(r"futex")
# Of pipes and sockets there are too many for a bin each.
NUMBERED = re.compile(r"^((?:pipe|socket):)\[\d+\]$")
CHILD = ("wait4", "waitid", "waitpid")
FORKS = ("vfork", "clone", "clone3", "fork")
SLEEPS = ("nanosleep", "clock_nanosleep")
POLLS = ("poll", "ppoll", "select", "pselect6", "_newselect")
EPOLLS = ("epoll_wait", "epoll_pwait", "epoll_pwait2")
SIGNALS = ("pause", "rt_sigsuspend", "sigsuspend", "rt_sigtimedwait")
# Calls whose first argument is a descriptor that they wait for.
OF_DESCRIPTORS = frozenset((
    "read", "write", "readv", "writev", "pread64", "pwrite64", "preadv", "pwritev", "preadv2",
    "pwritev2", "recvfrom", "recvmsg", "recvmmsg", "sendto", "sendmsg", "sendmmsg", "accept",
    "accept4", "connect", "ioctl", "fcntl", "flock", "fsync", "fdatasync", "sync_file_range",
    "syncfs", "splice", "vmsplice", "tee", "getdents", "getdents64", "close", "ftruncate",
    "fallocate", "copy_file_range", "fstat", "lseek", "shutdown",
))  # fmt: skip
ACCEPTS = ("accept", "accept4")

# At its end a thread wakes those that join it.
ENDS = ("exit", "exit_group")
KILLS = ("kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_send_signal")
WAITV = "futex_waitv"
SENDS = WRITES | {"connect", "shutdown", "close", "sendfile"}


class Wait(NamedTuple):
    """What is known of a wait. `woken`: whether what ended it is in the log. `waker`: the name of
    the thread that was running then. `request`: the completion of a request of a disk ended it.
    `ready`: the descriptor of an epoll that ended it. `other`: who is at the other end of that, or
    of `object`, as far as the log has it; `tcp`: what TCP did meanwhile (`sockets.flags`).
    """

    call: int
    stack: int
    state: int
    why: int
    lock: bool
    argument: int
    object: int
    woken: bool
    source: int
    number: int
    waker: str
    waker_call: int
    process: int
    request: bool
    ready: int = 0
    other: str = ""
    tcp: int = 0


class Found(NamedTuple):
    """Its bin, and whether it was a wait for the thread that ended it."""

    group: str
    kind: str
    what: str
    follows: bool


def judge(events: Events, wait: Wait) -> Found:
    """The first of these that is true; docs/why.md has them in the same order."""
    frames = events.stacks.get(wait.stack, [])
    call = events.call(wait.call) if wait.call >= 0 else ""
    by_thread = wait.woken and wait.source == THREAD
    return (
        stopped(wait, by_thread)
        or signalled(events, wait, call, by_thread)
        or of_futex(events, wait, call, by_thread)
        or of_kernel(events, wait, frames, call, by_thread)
        or of_request(events, wait, frames, call)
        or of_program(events, wait, call, by_thread)
        or Found(WAITED, call or "kernel", place(frames), by_thread)
    )


def stopped(wait: Wait, by_thread: bool) -> Found | None:
    if wait.state & (STOPPED | TRACED):
        return Found(
            WAITED, "stopped", "by a debugger" if wait.state & TRACED else "by a signal", by_thread
        )
    if wait.state & FROZEN:
        return Found(WAITED, "frozen", "with its control group", False)
    return None


def signalled(events: Events, wait: Wait, call: str, by_thread: bool) -> Found | None:
    """A signal ended it; what it was for did not come."""
    # An interrupt may come while another thread happens to send a signal; and no signal ends what
    # cannot be interrupted.
    if not by_thread or wait.state & (UNINTERRUPTIBLE | KILLABLE) == UNINTERRUPTIBLE:
        return None
    if wait.waker_call < 0 or events.call(wait.waker_call) not in KILLS:
        return None
    if call in SIGNALS or kind_of(waited_for(events, wait, call)) == "signal":
        return Found(WAITED, "signal", f"of {wait.waker}", True)
    return Found(WAITED, "interrupted", f"{call}, by a signal of {wait.waker}".lstrip(", "), False)


def of_futex(events: Events, wait: Wait, call: str, by_thread: bool) -> Found | None:
    """A lock, a condition, a semaphore, a barrier: the kernel cannot tell them apart."""
    if not FUTEX.match(call):
        return None
    if wait.woken and wait.source == TIMER:
        return timed_out(call)
    if by_thread and wait.waker_call >= 0 and events.call(wait.waker_call) in ENDS:
        return Found(WAITED, "thread", "to end", True)
    # The argument of futex_waitv is no lock, but a list of them. That of a wait which began before
    # the recording is not in the log.
    where = events.locks.get((wait.process, wait.argument)) or f"{wait.argument:#x}"
    where = where if wait.argument and call != WAITV else "not known"
    return Found(WAITED, "lock", f"{where} ({call})", by_thread)


def of_kernel(
    events: Events, wait: Wait, frames: list[str], call: str, by_thread: bool
) -> Found | None:
    if any(RECLAIM.match(frame) for frame in frames):
        return Found(WAITED, "reclaim", "of memory", False)
    if wait.lock or any(LOCK.match(frame) for frame in frames[:6]):
        return Found(WAITED, "kernel lock", f"in {place(frames)}", by_thread)
    if any(DISK.match(frame) for frame in frames):
        fault = any(FAULT.match(frame) for frame in frames)
        return Found(
            WAITED,
            "page fault from disk" if fault else "disk",
            place(frames) if fault else disk_place(events, wait, frames, call),
            by_thread and not wait.request,
        )
    return None


def of_request(events: Events, wait: Wait, frames: list[str], call: str) -> Found | None:
    """In a function that waits for anything, as for the end of asynchronous I/O, or for work. Of
    what a thread does after the completion of a request, in no interrupt, nobody knows why. Without
    its stack, such a wait may as well be for other requests to end.
    """
    is_known = frames or not needs_stack(wait)
    if not wait.request or wait.source == THREAD or not is_known:
        return None
    return Found(WAITED, "disk", disk_place(events, wait, frames, call), False)


def needs_stack(wait: Wait) -> bool:
    """Whether it takes more than its system call to know what it waits for. As `unexplained` in the
    schema, which logs the stacks of these waits in any case.
    """
    return bool(wait.state & UNINTERRUPTIBLE or wait.why & IN_FAULT or wait.lock or wait.call < 0)


def disk_place(events: Events, wait: Wait, frames: list[str], call: str) -> str:
    name = object_name(events, wait, call)
    what = f"{call} {name}".strip()
    return f"{what} in {place(frames)}".lstrip() if frames else what


def of_program(events: Events, wait: Wait, call: str, by_thread: bool) -> Found | None:
    if call in SLEEPS:
        return timer(f"{call} that it asked for")
    if call in CHILD or call in FORKS:
        child = wait.waker if by_thread else ""
        return Found(WAITED, "child" if call in CHILD else "child to execute", child, by_thread)
    if call in SIGNALS:
        return Found(WAITED, "signal", "", by_thread)
    if call in POLLS or call in EPOLLS:
        return polled(events, wait, call, by_thread)
    if call in OF_DESCRIPTORS:
        return of_descriptor(events, wait, call, by_thread)
    return None


def polled(events: Events, wait: Wait, call: str, by_thread: bool) -> Found:
    if call in EPOLLS and wait.ready in events.objects:
        return was_ready(events, wait, by_thread)
    if wait.woken and wait.source == TIMER:
        return timed_out(call)
    if by_network(wait):
        sent = sends(events, wait)
        return Found(WAITED, "network", call + by(wait, sent), sent)
    return Found(WAITED, "events", call + by(wait, by_thread), by_thread)


def was_ready(events: Events, wait: Wait, by_thread: bool) -> Found:
    """Of an epoll, it is known which descriptor ended the wait."""
    name = events.objects[wait.ready]
    if wait.ready in events.sockets.all:
        found = of_socket(events, wait, wait.ready, "", by_thread)
        return found._replace(kind="events" if found.kind == "socket" else found.kind)
    kind = kind_of(name)
    if kind == "timer":
        return timer(short(name))
    return Found(WAITED, "events", short(name) + by(wait, by_thread), by_thread)


def timer(what: str) -> Found:
    return Found(WAITED, "timer", what, False)


def timed_out(call: str) -> Found:
    return timer(f"{call}, ended by a timer")


def by(wait: Wait, is_known: bool) -> str:
    """Who ended it, or else who is at the other end."""
    name = wait.waker if is_known and wait.waker else wait.other
    return f" ({name})" if name else ""


def by_network(wait: Wait) -> bool:
    return wait.woken and wait.source == SOFT and wait.number == NET_RX


def sends(events: Events, wait: Wait) -> bool:
    """Over the loopback device the receiver is woken while the sender is still in its call."""
    return wait.waker_call >= 0 and events.call(wait.waker_call) in SENDS


def of_descriptor(events: Events, wait: Wait, call: str, by_thread: bool) -> Found | None:
    name = object_name(events, wait, call)
    if not name:
        return None
    kind = kind_of(name)
    if wait.woken and wait.source == TIMER:
        return timer(short(name)) if kind == "timer" else timed_out(call)
    if wait.object in events.sockets.all:
        return of_socket(events, wait, wait.object, call, by_thread)
    if kind == "socket" and by_network(wait):
        sent = sends(events, wait)
        return Found(WAITED, "network", call + by(wait, sent), sent)
    # A number says less than who is at the other end.
    if kind in ("pipe", "socket"):
        return Found(WAITED, kind, call + by(wait, by_thread), by_thread)
    what = short(name)
    # All that can be read of these is that they were counted up, or that there is one more.
    says_call = kind not in ("event", "signal", "timer") or call in WRITES
    what = f"{call} {what}" if says_call else what
    return Found(WAITED, kind, what + by(wait, by_thread), by_thread)


def of_socket(events: Events, wait: Wait, key: int, call: str, by_thread: bool) -> Found:
    """`call`: that it is in; empty: it waits for an epoll that watches the socket."""
    sockets = events.sockets
    where, one, is_local = sockets.places[key], sockets.all[key], sockets.is_local(key)
    # Who connects to a socket that listens may be here.
    may_be_here = is_local or not one.is_connected
    sent = by_thread or (by_network(wait) and may_be_here and sends(events, wait))
    if not call:
        where = f"socket {where}".rstrip()
    elif not where or call in ACCEPTS or call in WRITES or call == "connect":
        where = f"{call} {where}".rstrip()
    if wait.tcp & (DELAYED_OWN | DELAYED_OTHER):
        late = one.source if wait.tcp & DELAYED_OWN else one.destination
        where = f"delayed acknowledgement of {late}"
    elif wait.tcp & RETRANSMITTED:
        where += ", with a retransmission"
    is_far = by_network(wait) and not is_local and not sent
    return Found(WAITED, "network" if is_far else "socket", where + by(wait, sent), sent)


def waited_for(events: Events, wait: Wait, call: str) -> str:
    """What the descriptor is that ended the wait, or is waited for."""
    return events.objects.get(wait.ready, "") or object_name(events, wait, call)


def object_name(events: Events, wait: Wait, call: str) -> str:
    if call not in OF_DESCRIPTORS:
        return ""
    name = events.objects.get(wait.object, "")
    return NUMBERED.sub(r"\1", name)


# Names as in /proc/PID/fd.
STARTS = (
    ("pipe:", "pipe"), ("socket:", "socket"), ("anon_inode:[timerfd]", "timer"),
    ("anon_inode:[signalfd]", "signal"), ("anon_inode:", "event"), ("/dev/pts", "terminal"),
    ("/dev/tty", "terminal"),
)  # fmt: skip
ANONYMOUS = re.compile(r"^anon_inode:\[?([^\]]*)\]?$")


def kind_of(name: str) -> str:
    return next((kind for start, kind in STARTS if name.startswith(start)), "file")


def short(name: str) -> str:
    """`pipe`, `eventfd`; of what has a path, all of it."""
    name = ANONYMOUS.sub(r"\1", name)
    return NUMBERED.sub(r"\1", name).rstrip(":") if NUMBERED.match(name) else name


def place(frames: list[str]) -> str:
    """The function that waits, without those that all waits have."""
    for frame in frames:
        if not WAITING.match(frame):
            return frame if not ARCHITECTURE.match(frame) else frame.split("sys_", 1)[-1]
    return frames[0] if frames else ""
