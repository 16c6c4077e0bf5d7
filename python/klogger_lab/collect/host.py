# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The course of one host: log in, compare the clocks, record, bring the log home. It runs in a
thread of its own and waits for the others once, before all begin.
"""

from __future__ import annotations

import contextlib
import json
import queue
import re
import shlex
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from klogger import collected
from klogger.durations import duration
from klogger.failure import Failure
from klogger.program import answer, failure_of, klogger, message_of
from klogger.units import size
from klogger_lab.collect import fetch
from klogger_lab.collect.clocks import Clock, Reference, measure
from klogger_lab.collect.ssh import NO_CONNECTION, Lost, Session, Ssh

REMOTE = Path(__file__).with_name("remote.sh")
LOG, SEGMENTS = "recording.klog", "recording.segments"
# How often segments are brought home, in seconds.
EVERY = 2.0
# For a host whose connection was lost; the minute is for a recorder that does not end.
AGAIN = """
again() {
    n=0
    until [ -e "$1/ended" ] || [ ! -d "$1" ] || [ $n -ge 600 ]; do
        n=$((n + 1))
        sleep 0.1 2>/dev/null || sleep 1
    done
    echo "$token over"
    cat >/dev/null
}
"""


@dataclass(frozen=True)
class Plan:
    """The same for all hosts. `options` are of `klogger record`, on the hosts."""

    options: tuple[str, ...]
    home: Path
    program: str = "klogger"
    where: str = ""
    grace: int = 600
    reference: Reference = field(default_factory=Reference)
    version: str = field(default_factory=lambda: " ".join(klogger("--version").split()))

    @property
    def segmented(self) -> bool:
        ours = self.options[: self.options.index("--")] if "--" in self.options else self.options
        return any(word.split("=")[0] == "--segment" for word in ours)

    def script(self) -> str:
        """For a host: remote.sh and what it is to work with."""
        values = {
            "klogger": self.program, "where": self.where, "grace": str(self.grace),
            "to": "--dir" if self.segmented else "-o",
            "name": SEGMENTS if self.segmented else LOG,
        }  # fmt: skip
        lines = [f"{name}={shlex.quote(value)}" for name, value in values.items()]
        return "\n".join([*lines, REMOTE.read_text(), f"main {shlex.join(self.options)}"])


class Host:
    """`state` is shown; `notes` are said once, `lines` are what the recorded command wrote."""

    def __init__(self, ssh: Ssh, plan: Plan, notes: queue.Queue[tuple[str, Any]]) -> None:
        self.ssh, self.plan, self.notes = ssh, plan, notes
        self.name = ssh.host
        self.home = plan.home / folder_of(ssh.host)
        self.state = "connecting"
        self.failure: Failure | None = None
        self.clock = Clock()
        self.prepared, self.go, self.ended = threading.Event(), threading.Event(), threading.Event()
        self.start_ns: int | None = None
        self.session: Session | None = None
        self.folder = ""
        self.code: int | None = None
        self.summary: dict[str, Any] | None = None
        self.error: Failure | None = None
        self.log: dict[str, Any] | None = None
        self.log_name = SEGMENTS if plan.segmented else LOG
        self.thread = threading.Thread(target=self.run, name=self.name)

    def run(self) -> None:
        try:
            self.prepare()
            self.prepared.set()
            self.go.wait()
            if self.start_ns is not None:
                self.record(self.start_ns)
        except (Failure, Lost, OSError) as error:
            self.fail(error if isinstance(error, Failure) else Failure(str(error)))
        finally:
            self.prepared.set()
            self.ended.set()
            self.hang_up()

    def fail(self, failure: Failure) -> None:
        """Only the first is the cause."""
        self.failure = self.failure or failure
        self.state = f"failed: {self.failure.message}"

    def prepare(self) -> None:
        self.session = self.ssh.start(self.plan.script(), master=True)
        words = self.session.answer()
        if words is None:
            self.session.wait()
            otherwise = "no connection" if self.session.returncode == NO_CONNECTION else "no answer"
            raise Failure(self.session.reason(otherwise))
        if words[0] == "missing":
            raise Failure(
                f"there is no {self.plan.program} on its PATH", help="--klogger names the program"
            )
        self.check_version(" ".join(words[1:]))
        words = self.session.answer()
        if not words:
            raise Failure(self.session.reason())
        self.folder = " ".join(words[1:])
        self.state = "comparing clocks"
        self.compare()
        self.state = "ready"

    def check_version(self, found: str) -> None:
        if found != self.plan.version:
            self.note(f"it has {found}, and this machine {self.plan.version}")

    def compare(self) -> None:
        found = measure(self.ssh, self.plan.reference)
        if found:
            self.clock.measured.append(found)
        else:
            self.note("its clock could not be compared with ours")

    def note(self, text: str) -> None:
        self.notes.put((self.name, text))

    def start_at(self, ours_ns: int | None) -> None:
        """A time of our clock, or None: not at all."""
        self.start_ns = ours_ns
        self.go.set()

    def stop(self) -> None:
        """As Ctrl-C does it there. A host that is not ready yet is left alone."""
        if not self.prepared.is_set():
            self.give_up(Failure("interrupted before it began"))
        elif self.session:
            self.session.tell("stop\n")

    def give_up(self, failure: Failure | None = None) -> None:
        """The recording there ends with the connection, and nothing is fetched any more."""
        if failure:
            self.fail(failure)
        self.ssh.given_up = True
        if self.session and self.session.poll() is None:
            self.session.terminate()

    def record(self, ours_ns: int) -> None:
        assert self.session
        spans = self.clock.realtime(ours_ns)
        self.state = "starting"
        self.session.tell(f"start {ours_ns + (spans.middle if spans else 0)}\n")
        carrier = threading.Thread(target=self.carry) if self.plan.segmented else None
        if carrier:
            carrier.start()
        try:
            self.follow()
        finally:
            self.ended.set()
            if carrier:
                carrier.join()
        self.finish()

    def follow(self) -> None:
        """Until the recorder has ended, or the connection."""
        assert self.session
        while (found := self.session.line()) is not None:
            text, words = found
            message = message_of(text)
            if message:
                self.hear(message)
            elif text:
                self.notes.put((self.name, [text]))
            match words or [""]:
                case ["ended", code]:
                    self.code = int(code)
                    return
                case ["rescued", *_]:
                    self.note("its recorder was killed; what it had recorded was rescued")

    def hear(self, message: dict[str, Any]) -> None:
        match message["message"]:
            case "started":
                self.state = "recording"
            case "progress":
                lost = f", {message.get('lost'):,} lost" if message.get("lost") else ""
                self.state = (
                    f"recording: {message.get('events', 0):,} events,"
                    f" {size(message.get('bytes', 0))}{lost}"
                )
            case "summary":
                self.summary = message
            case "note":
                self.note(failure_of(message).message)
            case "error":
                self.error = failure_of(message)

    def finish(self) -> None:
        """The failure is that of the recording; its log comes home in any case."""
        if self.code is None:
            assert self.session
            self.hang_up()
            self.ssh.socket.unlink(missing_ok=True)
            self.fail(Failure(f"the connection was lost: {self.session.reason()}"))
            self.log_in_again()
        elif self.error:
            self.fail(self.error)
        elif self.code and not self.summary:
            killed = f"was killed by signal {self.code - 128}" if self.code > 128 else "failed"
            self.fail(Failure(f"its recorder {killed} (exit code {self.code})"))
        elif self.code:
            self.fail(Failure(f"the command ended with exit code {self.code}"))
        if self.code is not None:
            self.compare()
        try:
            self.bring()
        except (Failure, Lost, OSError) as error:
            where = f"it is in {self.folder} there, for {duration(self.plan.grace * 1e9)}"
            raise Failure(f"its log could not be fetched: {error}; {where}") from None
        self.bye()
        self.look()

    def look(self) -> None:
        """What has come."""
        log = self.home / self.log_name
        if not log.exists():
            raise Failure("it has no log")
        self.write_clock()
        self.log = answer("info", log)
        if not self.failure:
            self.state = "done"

    def log_in_again(self) -> None:
        """The recorder there is being ended, and completes its log; waits for it."""
        self.session = self.ssh.start(f"{AGAIN}again {shlex.join([self.folder])}", master=True)
        self.session.answer()

    def carry(self) -> None:
        """Segments, as they are completed."""
        while not self.ended.wait(EVERY):
            # Whatever went wrong is tried again.
            with contextlib.suppress(Failure, Lost, OSError):
                self.take(complete=True)

    def take(self, *, complete: bool) -> list[str]:
        found = fetch.logs(self.ssh, self.folder, complete=complete)
        for name in found:
            self.take_one(name)
        return found

    def take_one(self, name: str) -> None:
        source = f"{self.folder}/{name}"

        def shown(have: int) -> None:
            if self.ended.is_set() and not self.failure:
                self.state = f"bringing {name} home: {size(have)}"

        fetch.bring(self.ssh, source, self.home / name, shown)
        fetch.remove(self.ssh, source)

    def bring(self) -> None:
        try:
            self.take(complete=False)
        except Lost:
            # Once more, with a login of its own.
            time.sleep(1)
            self.take(complete=False)

    def write_clock(self) -> None:
        at = self.plan.reference.now()
        found = {"version": 1, "host": self.name, "log": self.log_name, **self.clock.as_json(at)}
        with fetch.private(self.home / collected.FILE) as out:
            out.write(json.dumps(found, indent=1).encode() + b"\n")

    def bye(self) -> None:
        """The folder there is removed, by the shell there, or by us if it does not answer."""
        if self.code is None:
            fetch.remove(self.ssh, self.folder)
            return
        assert self.session
        self.session.tell("bye\n")
        self.session.answer()

    def hang_up(self) -> None:
        if self.session:
            self.session.close_input()
            if self.session.poll() is None:
                self.session.terminate()
            self.session.wait()

    def begun_ns(self) -> int | None:
        """When its recording began, by our clock."""
        if not self.log:
            return None
        clock = self.log["preamble"]["clock"]
        return collected.wall(self.clock.as_json(0), clock)


def folder_of(host: str) -> str:
    """A destination of ssh as a name of a folder."""
    found = re.sub(r"[^\w@.:\[\]-]", lambda m: f"%{ord(m[0]):02x}", host)
    return found.replace(".", "%2e") if found in (".", "..") else found
