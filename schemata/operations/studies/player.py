# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Streams that must be in time, on three file systems: how late, and because of which layer; and
how many bytes move when the half of a file is cut and pasted.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from klogger import spans
from klogger.failure import Failure
from klogger.log import Log
from klogger_lab.disk import Disk, loop_disk
from klogger_lab.study.model import Answer, Arm, Check, Plan, Run, Study

from . import _edits, _late
from . import _player_tables as tables
from ._late import Request

MIB = 1 << 20
DISK_MIB = 512
MKFS = {
    "ext4": ["mkfs.ext4", "-q", "-F"], "xfs": ["mkfs.xfs", "-q", "-f"],
    "btrfs": ["mkfs.btrfs", "-q", "-f"],
}  # fmt: skip
# Streams; percent of what the disk can that they want together (0: all of it), as the source's 4 of
# 5 MB/s and 6 of 3 MB/s of a disk with 27.8 MB/s; and writers beside them.
LOADS = ((4, 72, 2), (4, 0, 0), (4, 72, 0), (6, 65, 2), (2, 0, 0), (8, 0, 0))
STREAM_MIB = 24
# The source cut and pasted the half of a file of this size; a short budget makes it smaller.
EDITED = 131_072_000
EDITED_LEAST = EDITED // 8
METHODS = ("copy loop", "reflink", "copy loop, within", "collapse + insert", "library")
# What a method needs that not every file system has.
LACKING = {("ext4", "reflink"), ("btrfs", "collapse + insert")}
# Seconds of a recording beside its load: the disk, and six schemata.
AROUND, SECONDS_OF_EDITS, LEAST = 2.5, 2.5, 0.8
SECTOR = 512
CLOCK_SLACK_NS = 50_000
SCHEMATA = ("operations", "block", "writeback", "scheduler")
# Of a file system.
OWN = {"ext4": ("-s", "ext4"), "xfs": ("-s", "xfs")}


@dataclass
class Played:
    """An arm with streams. Times are ns."""

    kind: str
    streams: int
    percent: int
    writers: int
    requests: list[Request] = field(default_factory=list)
    # The worst of the player's own clock and that of the log, by its calls of pread.
    calls: int = 0
    apart: list[int] = field(default_factory=list)

    @property
    def load(self) -> str:
        each = f"{self.percent} % of the disk" if self.percent else "as fast as they can"
        beside = f", beside {self.writers} writers" if self.writers else ""
        return f"{self.streams} streams, {each}{beside}"

    @property
    def timed(self) -> list[Request]:
        return [r for r in self.requests if r.deadline]

    @property
    def late(self) -> list[Request]:
        return [r for r in self.requests if r.late]

    def explained(self) -> list[Request]:
        """Those that were late; if none was, the slowest 1 %."""
        if self.late:
            return self.late
        slowest = sorted(self.timed or self.requests, key=lambda r: r.took, reverse=True)
        return slowest[: max(len(slowest) // 100, 1)]


@dataclass
class Edited:
    """A method on a file system; bytes are the device's. `error`: it has no such method."""

    kind: str
    method: str
    size: int
    seconds: float = 0.0
    read: int = 0
    written: int = 0
    logged: tuple[int, int] = (0, 0)
    right: bool = False
    error: str = ""

    @property
    def edited(self) -> int:
        return self.size // 2

    @property
    def moved(self) -> float:
        """Bytes of the device for each byte that was edited."""
        return (self.read + self.written) / self.edited


@contextlib.contextmanager
def prepared(folder: Path, kind: str, streams: int) -> Iterator[Disk]:
    """A disk of that kind, with the files of the streams, of which nothing is in the page cache."""
    with loop_disk(
        folder, DISK_MIB, mkfs=MKFS[kind], mount_options="noatime", losetup=("--direct-io=on",)
    ) as disk:
        assert disk.folder is not None
        for number in range(streams):
            with (disk.folder / f"stream{number}").open("wb") as file:
                file.write(os.urandom(MIB) * STREAM_MIB)
                file.flush()
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        yield disk


def arms(plan: Plan) -> list[Arm]:
    kinds = [kind for kind in MKFS if shutil.which(MKFS[kind][0])]
    if not kinds:
        raise Failure(
            "no mkfs.ext4, mkfs.xfs, mkfs.btrfs here", help="apt install e2fsprogs xfsprogs"
        )
    each, loads, size = shares(plan.seconds, len(kinds))
    program = plan.build("player.c")
    found = []
    for kind in kinds:
        folder = plan.folder / f"player-{kind}"
        for streams, percent, writers in loads:
            command = [program, folder / "mounted", str(streams), str(percent), f"{each:.1f}",
                       str(writers)]  # fmt: skip
            parameters = {"kind": kind, "streams": streams, "percent": percent, "writers": writers}
            name = f"{kind}, {Played(kind, streams, percent, writers).load}"
            around = partial(prepared, folder, kind, streams)
            record = ("-a", *OWN.get(kind, ()))
            found.append(Arm(name, command, each + AROUND, parameters, record, around=around))
        script = Path(_edits.__file__).resolve()
        command = [sys.executable, script, folder / "mounted", str(size), *METHODS]
        around = partial(prepared, folder, kind, 0)
        found.append(
            Arm(f"{kind}, edits", command, SECONDS_OF_EDITS, {"kind": kind, "size": size}, ("-a",),
                around=around)
        )  # fmt: skip
    return found


def shares(seconds: float, kinds: int) -> tuple[float, tuple, int]:
    """Seconds of each load, the loads, and the size of the file that is edited."""
    of_kind = seconds / kinds - SECONDS_OF_EDITS
    count = min(max(int(of_kind / (AROUND + 2)), 1), len(LOADS))
    each = max(of_kind / count - AROUND, LEAST)
    size = EDITED if seconds >= 100 else EDITED_LEAST
    return each, LOADS[:count], size


def analyse(_: Plan, runs: list[Run]) -> Answer:
    played = [played_in(run) for run in runs if "streams" in run.arm.parameters]
    edited = [one for run in runs if "size" in run.arm.parameters for one in edited_in(run)]
    answer = Answer()
    answer.results = [
        tables.times(played), tables.lateness(played), tables.layers(played), tables.edits(edited)
    ]  # fmt: skip
    answer.sentences = sentences(played, edited)
    answer.checks = [*checks_of_streams(played), *checks_of_edits(edited)]
    answer.cannot = list(CANNOT)
    missing = [kind for kind in MKFS if not shutil.which(MKFS[kind][0])]
    if missing:
        answer.cannot.append(f"{', '.join(missing)}: there is no mkfs for it here.")
    return answer


def played_in(run: Run) -> Played:
    p: dict[str, Any] = dict(run.arm.parameters)
    one = Played(p["kind"], p["streams"], p["percent"], p["writers"])
    log = run.log
    assert log is not None
    spans.fill_for(log, "klogger.span, klogger.operation")
    one.requests = _late.requests_of(run.output, log.start_ns)
    tids = {request.tid for request in one.requests}
    by_thread = _late.spans_of(log, tids)
    for request in one.requests:
        request.parts = _late.split(request, by_thread[request.tid])
    compare_clocks(log, one, tids)
    return one


def compare_clocks(log: Log, one: Played, tids: set[int]) -> None:
    """Each request with the call of pread in the log that it encloses."""
    listed = ", ".join(map(str, tids))
    calls = log.rows(f"""
        SELECT pid, from_ns, to_ns FROM klogger.operation
        WHERE pid IN ({listed}) AND call = 'pread64' AND to_ns IS NOT NULL ORDER BY pid, from_ns
    """)
    one.calls = len(calls)
    for request, (pid, from_ns, to_ns) in zip(
        sorted(one.requests, key=lambda r: (r.tid, r.issued)), calls, strict=False
    ):
        inside = pid == request.tid and request.issued <= from_ns and to_ns <= request.done
        one.apart.append(request.took - (to_ns - from_ns) if inside else -1)


def edited_in(run: Run) -> list[Edited]:
    log, disk = run.log, run.oracle
    assert log is not None
    found = []
    for line in run.output.splitlines():
        said = json.loads(line)
        one = Edited(
            str(run.arm.parameters["kind"]), said["method"], int(run.arm.parameters["size"])
        )
        found.append(one)
        if "error" in said:
            one.error = said["error"]
            continue
        one.seconds = (said["ended"] - said["begun"]) / 1e9
        one.read, one.written = SECTOR * said["read"], SECTOR * said["written"]
        one.right = said["right"]
        from_ns, to_ns = said["begun"] - log.start_ns, said["ended"] - log.start_ns
        ((read, written),) = log.rows(f"""
            SELECT coalesce(sum(bytes) FILTER (kind = 0), 0)::BIGINT,
                coalesce(sum(bytes) FILTER (kind = 1), 0)::BIGINT
            FROM RQ_DONE WHERE device = {disk.number} AND time BETWEEN {from_ns} AND {to_ns}
        """)
        one.logged = read, written
    return found


def sentences(played: list[Played], edited: list[Edited]) -> list[str]:
    said = []
    late = [request for one in played for request in one.late]
    total = sum(len(one.timed) for one in played)
    if late:
        worst = max(late, key=lambda r: r.late)
        said.append(
            f"{len(late):,} of {total:,} requests missed their deadline, by"
            f" {worst.late / 1e6:.1f} ms at most; most of that one was '{worst.largest}'."
        )
    else:
        said.append(f"None of {total:,} requests with a deadline was late.")
    whole = {(one.kind, one.method): one for one in edited if not one.error}
    for kind in MKFS:
        copied, shared = whole.get((kind, "copy loop")), whole.get((kind, "reflink"))
        if copied and shared:
            said.append(
                f"On {kind} a reflink took {1000 * shared.seconds:.1f} ms, the copy loop"
                f" {copied.seconds / max(shared.seconds, 1e-9):,.0f} times as long; in the source"
                f" its library was {tables.SOURCE_COPY_S / tables.SOURCE_CUT_S:.1f} times as fast"
                " as a copy loop."
            )
    return said


def checks_of_streams(played: list[Played]) -> list[Check]:
    found = []
    for one in played:
        name = f"{one.kind}, {one.load}"
        found.append(
            Check(f"requests are calls of pread: {name}", one.calls == len(one.requests),
                  f"{one.calls:,} in the log, {len(one.requests):,} by the player")
        )  # fmt: skip
        apart = sorted(one.apart)
        middle = apart[len(apart) // 2] if apart else -1
        inside = bool(apart) and apart[0] >= 0
        found.append(
            Check(f"the player's clock and the log's: {name}", inside and middle <= CLOCK_SLACK_NS,
                  f"half of the requests differ by less than {middle / 1000:.1f} us"
                  if inside else "a call is not within its request")
        )  # fmt: skip
        whole = all(sum(r.parts.values()) == r.took for r in one.requests)
        found.append(
            Check(f"parts add up: {name}", whole, "by layer, they are what each request took")
        )
    return found


def checks_of_edits(edited: list[Edited]) -> list[Check]:
    found = []
    for one in edited:
        name = f"{one.method}, {one.kind}"
        if one.error:
            found.append(
                Check(
                    f"it is known to lack it: {name}", (one.kind, one.method) in LACKING, one.error
                )
            )
            continue
        found.append(Check(f"files are what they should be: {name}", one.right, "byte by byte"))
        count = (one.read, one.written)
        found.append(
            Check(f"bytes of the device: {name}", one.logged == count,
                  f"{one.logged[0]:,} read and {one.logged[1]:,} written in the log,"
                  f" {count[0]:,} and {count[1]:,} by the kernel's count")
        )  # fmt: skip
        if one.method in ("reflink", "library", "collapse + insert"):
            found.append(
                Check(f"no data move: {name}", one.moved < 0.01 or one.read + one.written < 4 * MIB,
                      f"{one.read + one.written:,} bytes of the device for {one.edited:,}")
            )  # fmt: skip
        elif one.method == "copy loop":
            found.append(
                Check(f"data move twice: {name}", 1.9 <= one.moved <= 2.5,
                      f"{one.moved:.2f} bytes of the device for each")
            )  # fmt: skip
    return found


CANNOT = (
    "The source's real-time subvolume of XFS: the kernel may be built without it.",
    (
        "The seeks of its disk of 2006, which dominate its maxima: a loop device has none. Compare"
        " which layer is late, not by how much."
    ),
)

STUDY = Study(
    name="player",
    title="Streams with deadlines",
    question="Does each request of a stream end in time, and if not, which layer was late?",
    paper=(
        "A reliable and portable multimedia file system, Linux Symposium 2006, volume 1: its tables"
        " of latency and jitter, and cut and paste"
    ),
    found=(
        "Average latencies of ext3, XFS and its library on a raw partition differed by less than"
        " 10 %, maxima by far more. Moving 65,536,000 bytes to another file took its library 0.274"
        " s, and a copy loop on ext3 3.9 s."
    ),
    schemata=SCHEMATA,
    arms=arms,
    analyse=analyse,
    seconds=150,
    least_seconds=28,
)
