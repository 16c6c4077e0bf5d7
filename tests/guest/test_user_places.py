# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Functions and static probes of programs on Linux 6.1, where perf has an event for each place."""

import json
import re
import subprocess

import pytest
from kernels import ROOT
from oracles import Log
from test_command import command  # noqa: F401  (a fixture)

pytestmark = pytest.mark.full("boots guests of its own")

LIVE = ROOT / "tests/live"


def schema(library) -> str:
    """The one that is recorded on the kernel that runs here."""
    text = (LIVE / "test_user_places.py").read_text()
    found = re.search(r'^SCHEMA = """\n(.*?)^"""', text, re.M | re.S)
    return found[1].replace("LIBRARY", str(library))


def test_counts_and_values_by_perf_events(command, klogger):  # noqa: F811
    folder = command.folder
    program, library, log = folder / "places", folder / "liblate.so", folder / "places.klog"
    for source, to, flags in [
        ("places.c", program, ["-pthread", "-ldl"]),
        ("late.c", library, ["-shared", "-fPIC"]),
    ]:
        words = ["cc", "-O2", "-o", to, LIVE / "programs" / source, *flags]
        subprocess.run(list(map(str, words)), check=True)
    (folder / "places.klogger").write_text(schema(library))
    done = command.run(
        *("-s", "./places.klogger", "-o", str(log), "--record=--no-calibrate"),
        *("--", str(program), str(library)),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(re.search(r"\{.*\}", done.stdout)[0])
    found = Log(klogger, log)
    calls = report["own"] + report["made"] + len(report["threads"]) * report["thread"]
    assert found.rows("SELECT count(*), sum(3 * n + 1) FROM STEP") == found.rows(
        "SELECT count(*), sum(result) FROM STEPPED"
    )
    assert found.count("STEP") == calls
    assert found.count("LATE") == report["late"]
    assert found.rows("SELECT a, f, g, h, i FROM MANY") == [(1, -6, -7, 2**40, ord("x"))]
    shots = found.rows("SELECT place, a, b, c FROM SHOT ORDER BY time")
    first = [(1, n, -5000000000, -n) for n in range(report["shots"])]
    assert shots == first + [(2, -7, 700, -n) for n in range(report["shots"])]
    assert report["semaphore"] > 0
