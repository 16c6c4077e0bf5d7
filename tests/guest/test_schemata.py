# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The verifier of Debian's kernel takes every bundled schema: it tries more ways through a program
than that of later kernels. And `waits`, whose programs are the largest, has events there from which
`klogger why` answers.
"""

import json
import os
import subprocess
import sys

import pytest
from kernels import ROOT, said_in_guest, unpacked

pytestmark = pytest.mark.full("boots guests of its own")

SCHEMATA = sorted(path.name for path in (ROOT / "schemata").iterdir())
TIMES = 53
SCRIPT = f"""
for module in ext4 xfs; do modprobe $module; done
for schema in {" ".join(SCHEMATA)}; do
    klogger record -q --no-calibrate -s $schema -o /tmp/$schema.klog -- true >/tmp/said 2>&1 ||
        echo "refused $schema $(tail -n 5 /tmp/said | tr '\n' ' ')"
    echo "recorded $schema"
done
klogger record -q --no-calibrate -s waits -o /tmp/x.klog -- ./why poll {TIMES}
echo "code $?"
echo "log $(base64 -w 0 /tmp/x.klog)"
"""


@pytest.fixture(scope="module")
def said(klogger, tmp_path_factory):
    folder = tmp_path_factory.mktemp("schemata")
    source = ROOT / "tests/live/why.c"
    subprocess.run(["cc", "-O1", "-pthread", source, "-o", folder / "why"], check=True)
    return folder, said_in_guest(klogger, folder, SCRIPT)


def test_the_verifier_takes_each_schema(said):
    _, lines = said
    assert [rest for word, rest in lines if word == "refused"] == []
    assert [rest for word, rest in lines if word == "recorded"] == SCHEMATA
    assert ("code", "7") in lines


def test_why_answers_of_an_older_kernel(klogger, said):
    folder, lines = said
    file = unpacked(dict(lines), "log", folder / "x.klog")
    report = folder / "why.json"
    subprocess.run(
        [sys.executable, "-m", "klogger_lab.cli.why", "--format", "json", "--report", report, file],
        env={**os.environ, "KLOGGER": str(klogger)}, check=True,
    )  # fmt: skip
    answer = json.loads(report.read_text())
    assert sum(one["ns"] for one in answer["bins"]) == answer["elapsed_ns"]
    timers = [one for one in answer["bins"] if (one["group"], one["kind"]) == ("waited", "timer")]
    assert sum(one["times"] for one in timers) == TIMES
