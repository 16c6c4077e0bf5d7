# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Of stalls that a program plants and measures itself, the cause is found in 95 of 100: by the
waterfall of each operation, which the analysis `stalls` sums up.
"""

import contextlib
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Recorder
from oracles import SCHEMATA, Log
from stall_verdicts import Stalls, read

from klogger_lab.disk import loop_disk

HERE = Path(__file__).resolve().parents[1]
# Without the scheduler: what none of these tells is unexplained.
RECORDED = ["operations", "block", "ext4", "writeback"]
TIMES = 53
# Of each planted cause: how its file system is mounted, its journal in MiB, and what it is called.
PLANTED = {
    "lock": ("data=ordered", 4, "lock"),
    "journal": ("data=journal", 4, "journal"),
    "checkpoint": ("data=journal", 1, "journal"),
}


@pytest.fixture(scope="module")
def planted(klogger, tmp_path_factory) -> Iterator[tuple[Path, dict[str, int], Stalls]]:
    """All in one recording: it takes longer to begin one than to record. The log, the devices, and
    what was found.
    """
    folder = tmp_path_factory.mktemp("stalls")
    recorder = Recorder(klogger, folder)
    schemata = [word for name in RECORDED for word in ("-s", SCHEMATA / name / f"{name}.klogger")]
    program = [sys.executable, "-I", HERE / "stall_causes.py", TIMES]
    devices = {}
    try:
        with contextlib.ExitStack() as disks:
            for cause, (options, journal, _) in PLANTED.items():
                mkfs = ["mkfs.ext4", "-q", "-b", "1024", "-J", f"size={journal}"]
                one = loop_disk(folder / cause, 64, mkfs=mkfs, mount_options=options)
                disk = disks.enter_context(one)
                devices[cause] = disk.number
                program.append(f"{cause}={disk.folder}")
            done, path = recorder.run(*schemata, "--", *program)
    finally:
        recorder.end()
    assert done.code == 0, done.err
    yield path, devices, read(path, done.out)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.full("takes more than 3 s")
@pytest.mark.parametrize("cause", PLANTED)
def test_the_cause_of_planted_stalls(planted, cause):
    planted[2].check(cause, PLANTED[cause][2], TIMES)


@pytest.mark.full("takes more than 3 s")
def test_the_journal_was_full(planted, klogger):
    path, devices, _ = planted
    assert Log(klogger, path).count("CHECKPOINT", f"device = {devices['checkpoint']}") > 0
