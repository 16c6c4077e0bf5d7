# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`klogger watch` finds crashes and dead-locks in events, each once, and nothing else."""

from __future__ import annotations

import argparse
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from klogger.failure import Failure
from klogger_lab.cli import watch
from klogger_lab.watch import account, blocked
from klogger_lab.watch.detect import Crash, Deadlock, Detector, Event, Wait
from klogger_lab.watch.stream import parsed

MS = 1_000_000


def found(events: list[Event]) -> list[Crash | Deadlock]:
    detector = Detector()
    return [one for event in events for one in detector.feed(event)]


def event(ms: int, name: str, **fields: Any) -> Event:
    return {"time": ms * MS, "event": name, **fields}


def tree() -> list[Event]:
    """make, 10, has made 11, which runs prog."""
    return [
        event(0, "RAN", pid=10, old_pid=10, program="/usr/bin/make"),
        event(1, "STARTED", pid=11, tgid=11, parent=10),
        event(2, "RAN", pid=11, old_pid=11, program="/tmp/prog"),
    ]


def fault(ms: int, action: int = 0, tid: int = 11) -> list[Event]:
    return [
        event(ms, "SIGNALLED", pid=tid, sender=tid, code=1, sig=11, result=0, whole=False),
        event(
            ms, "DELIVERED", address=0x10, user_stack=7, code=1, sig=11, action=action,
            tid=tid, tgid=11,
        ),
    ]  # fmt: skip


def ended(ms: int, code: int, pid: int = 11, last: bool = True) -> Event:
    return event(ms, "ENDED", pid=pid, tgid=11, code=code, last=last)


def test_a_crash_has_its_signal_its_place_and_its_parents() -> None:
    (crash,) = found([*tree(), *fault(3), ended(4, 139)])
    assert isinstance(crash, Crash)
    assert (crash.process.name, crash.signal_name, crash.core) == ("prog[11]", "SIGSEGV", True)
    assert (crash.address, crash.stack, crash.thread, crash.time) == (0x10, 7, 11, 4 * MS)
    assert [parent.name for parent in crash.parents] == ["make[10]"]
    assert crash.sender is None


def test_a_process_of_many_threads_crashes_once() -> None:
    threads = [event(2, "STARTED", pid=pid, tgid=11, parent=11) for pid in (12, 13)]
    events = [
        *tree(),
        *threads,
        *fault(3, tid=12),
        ended(4, 11, 13, False),
        ended(5, 11, 12, False),
    ]
    (crash,) = found([*events, ended(6, 11)])
    assert isinstance(crash, Crash)
    assert (crash.thread, crash.time) == (12, 4 * MS)


@pytest.mark.parametrize(
    "events",
    [
        [*fault(3, action=2), ended(4, 0)],
        [*fault(3, action=2), *fault(4, action=2), ended(5, 5 << 8)],
        [event(3, "SIGNALLED", pid=11, sender=10, code=0, sig=15), ended(4, 15)],
        [event(3, "SIGNALLED", pid=11, sender=10, code=0, sig=9), ended(4, 9)],
        [ended(4, 2)],
    ],
)
def test_what_is_handled_or_asked_for_is_no_crash(events: list[Event]) -> None:
    assert found([*tree(), *events]) == []


def test_a_handler_may_end_in_a_crash() -> None:
    (crash,) = found([*tree(), *fault(3, action=2), *fault(4), ended(5, 139)])
    assert isinstance(crash, Crash)


def test_out_of_memory_is_a_crash_and_has_no_sender() -> None:
    killed = event(3, "SIGNALLED", pid=11, sender=99, code=0x80, sig=9, whole=True)
    (crash,) = found([*tree(), killed, ended(4, 9)])
    assert isinstance(crash, Crash)
    assert (crash.signal_name, crash.sender) == ("SIGKILL", None)


def test_another_process_may_send_the_signal() -> None:
    sent = event(3, "SIGNALLED", pid=11, sender=10, code=0, sig=6)
    (crash,) = found([*tree(), sent, ended(4, 134)])
    assert isinstance(crash, Crash)
    assert crash.sender is not None and crash.sender.name == "make[10]"


def test_a_number_is_used_again() -> None:
    again = event(10, "STARTED", pid=11, tgid=11, parent=10)
    crashes = found([*tree(), *fault(3), ended(4, 139), again, *fault(11), ended(12, 139)])
    assert [crash.time for crash in crashes] == [4 * MS, 12 * MS]
    assert crashes[1].process.name == "make[11]"


def wait(ms: int, tid: int, lock: int, holder: int) -> Event:
    return event(ms, "WAIT", lock=lock, user_stack=tid, holder=holder, op=0, tid=tid, tgid=10)


def waited(ms: int, tid: int, lock: int) -> Event:
    return event(ms, "WAITED", lock=lock, result=0, tid=tid, tgid=10)


CROSSED = [wait(0, 11, 0xB0, 12), wait(5, 12, 0xA0, 11)]


def test_a_circle_that_lasts_is_a_dead_lock() -> None:
    (one,) = found([*CROSSED, waited(305, 11, 0xB0), waited(306, 12, 0xA0)])
    assert isinstance(one, Deadlock)
    assert [(w.thread, w.lock, w.holder) for w in one.waits] == [(12, 0xA0, 11), (11, 0xB0, 12)]
    assert (one.time, one.lasted) == (5 * MS, 300 * MS)


def test_a_thread_may_wait_for_itself() -> None:
    (one,) = found([wait(0, 11, 0xA0, 11), event(200, "ENDED", pid=11, tgid=10, code=9, last=True)])
    assert isinstance(one, Deadlock) and len(one.waits) == 1


def test_a_holder_may_be_a_guess_that_a_name_proves(tmp_path: Path) -> None:
    guess = event(0, "WAIT", lock=0xA0, user_stack=7, holder=0, guess=11, op=0, tid=11, tgid=10)
    (one,) = found([guess, waited(300, 11, 0xA0)])
    assert isinstance(one, Deadlock) and not one.known
    names = ["futex_wait", "__lll_lock_wait"]
    teller = account.Teller(0, tmp_path, 0)
    teller.stack = lambda number: [{"function": name} for name in names]  # type: ignore
    assert teller.proved(one).known
    title = teller.deadlock(teller.proved(one)).title
    assert title.startswith("dead-lock in ")
    names[:] = ["syscall", "__lll_lock_wait"]
    told = teller.deadlock(teller.proved(one))
    assert told.title.startswith("perhaps a dead-lock in ") and told.data["finding"] == "guess"
    names[:] = []
    assert not teller.proved(one).known
    # What is known stays so.
    (known,) = found([wait(0, 11, 0xA0, 11), waited(300, 11, 0xA0)])
    assert isinstance(known, Deadlock) and teller.proved(known).known


@pytest.mark.parametrize(
    "events",
    [
        # Shorter than 100 ms.
        [*CROSSED, waited(90, 11, 0xB0)],
        # A chain; a lock without a known holder.
        [wait(0, 11, 0xB0, 12), wait(5, 12, 0xA0, 13), waited(500, 12, 0xA0)],
        [wait(0, 11, 0xB0, 12), wait(5, 12, 0xA0, 0), waited(500, 12, 0xA0)],
        # 11 has given its lock to another thread before it waits.
        [
            wait(0, 12, 0xA0, 11), event(1, "WOKE", lock=0xA0, result=1, tid=11, tgid=10),
            wait(2, 11, 0xB0, 12), waited(500, 11, 0xB0),
        ],
    ],
)  # fmt: skip
def test_other_waits_are_no_dead_lock(events: list[Event]) -> None:
    assert found(events) == []


def test_a_circle_is_reported_once() -> None:
    again = [wait(310, 11, 0xB0, 12), waited(600, 11, 0xB0)]
    assert len(found([*CROSSED, waited(305, 11, 0xB0), *again])) == 1


def test_what_is_kept_is_bounded() -> None:
    detector = Detector()
    for n in range(20_000):
        pid = 100 + n
        list(detector.feed(event(n, "STARTED", pid=pid, tgid=pid, parent=10)))
        list(detector.feed(event(n, "ENDED", pid=pid, tgid=pid, code=139, last=True)))
    assert len(detector.processes) < 5_000 and len(detector.crashed) < 5_000
    assert not detector.tgids and not detector.fatal and not detector.waiters


def test_damaged_events_find_nothing() -> None:
    names = ["STARTED", "RAN", "ENDED", "SIGNALLED", "DELIVERED", "WAIT", "WAITED", "WOKE", None, 7]
    huge: list[Any] = [2**63, -1, None, "text", [1], True, {}]
    fields = ("pid", "tgid", "tid", "code", "time", "sig", "lock", "holder", "last", "program")
    for value in huge:
        events = [{"event": name, **dict.fromkeys(fields, value)} for name in names]
        for one in found(events):
            assert isinstance(one, Crash | Deadlock)


def test_a_line_that_is_no_event_is_left_out() -> None:
    assert list(parsed(b'{"event":"RAN"')) == [] == list(parsed(b"[1]")) == list(parsed(b"\xff"))
    assert list(parsed(b'{"time":1,"event":"RAN","pid":1}')) == [
        {"time": 1, "event": "RAN", "pid": 1}
    ]


@pytest.mark.skipif(not Path("/proc/self/syscall").exists(), reason="no /proc/PID/syscall")
def test_the_kernel_says_whether_a_thread_waits() -> None:
    """Of a thread that waits for a lock, the address is in its system call."""
    lock = threading.Lock()
    with lock:
        thread = threading.Thread(target=lock.acquire)
        thread.start()
        tid = thread.native_id or 0
        path = Path(f"/proc/{os.getpid()}/task/{tid}/syscall")
        try:
            call = path.read_text().split()
        except PermissionError:
            pytest.skip("this user may not see system calls")
        while len(call) < 2:
            call = path.read_text().split()
        address = int(call[1], 16)
        one = Wait(tid, os.getpid(), address, 1, 0, 0)
        assert blocked.state_of(one) is not None
        assert blocked.state_of(one) == blocked.state_of(one)
        assert blocked.state_of(Wait(tid, os.getpid(), address + 8, 1, 0, 0)) is None
    thread.join()
    assert blocked.state_of(Wait(tid, os.getpid(), 1, 1, 0, 0)) is None


def test_an_account_says_where_and_what_before(monkeypatch: pytest.MonkeyPatch) -> None:
    frames = [{"function": "boom", "source": "a.c:3"}, {"function": "main", "source": ""}]
    monkeypatch.setattr(account, "answer", lambda *_, **__: frames)
    teller = account.Teller(1, Path("x.klog"), 2)
    lines = [f" 0.00{n}000000 0 RAN pid=prog[11]" for n in range(1, 5)]
    told = [" -1.00 ms  RAN pid=prog[11]", "        0  RAN pid=prog[11]"]
    monkeypatch.setattr(teller, "cat", lambda *_: lines)
    (crash,) = found([*tree(), *fault(3), ended(4, 139)])
    assert isinstance(crash, Crash)
    said = teller.crash(crash)
    assert said.title == "prog[11] crashed: SIGSEGV at 0x10 (core dumped)"
    assert said.text == [
        "  program  /tmp/prog",
        "  made by  make[10]",
        "  stack    boom  a.c:3",
        "           main",
        f"  before   {told[0]}",
        f"           {told[1]}",
    ]
    assert said.data["stack"] == frames and said.data["signal"] == 11


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "there is no command to watch"),
        (["--"], "there is no command to watch"),
        (["--", "no-such-program-here"], "there is no such command"),
        (["--before", "-1", "--", "true"], "not negative"),
    ],
)
def test_bad_input_is_one_message(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert watch.main(words) == 2
    said = capsys.readouterr().err
    assert message in said and said.count("klogger: ") == 1


def test_only_root_can_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(Failure, match="only root"):
        watch.check(argparse.Namespace(before=1), ["true"])
