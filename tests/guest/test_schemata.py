# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The verifier of Debian's kernel takes every bundled schema: it tries more ways through a program
than that of later kernels. And `waits`, whose programs are the largest, has events there from which
`klogger why` answers, and knows the requests behind waits for disks. `timers` has as many of each
kind as a program arms: there the kernel does not say why it takes a timer out of its queue.
"""

import json
import os
import shutil
import subprocess
import sys

import pytest
from kernels import ROOT, said_in_guest, unpacked
from oracles import Log

pytestmark = pytest.mark.full("boots guests of its own")

SCHEMATA = sorted(path.name for path in (ROOT / "schemata").iterdir())
TIMES, WRITES, ASKS = 53, 31, 7
# What schemata/timers/workload.c arms: the function that it calls, and the sort of timer.
ARMED = {
    "sleep": ("hrtimer_wakeup", "hrtimer"), "cancel": ("it_real_fn", "hrtimer"),
    "timerfd": ("timerfd_tmrproc", "hrtimer"), "socket": ("process_timeout", "wheel"),
}  # fmt: skip
SCRIPT = f"""
for module in ext4 xfs loop; do modprobe $module; done
for schema in {" ".join(SCHEMATA)}; do
    klogger record -q --no-calibrate -s $schema -o /tmp/$schema.klog -- true >/tmp/said 2>&1 ||
        echo "refused $schema $(tail -n 5 /tmp/said | tr '\n' ' ')"
    echo "recorded $schema"
done
klogger record -q --no-calibrate -s waits -o /tmp/x.klog -- ./why poll {TIMES}
echo "code $?"
echo "log $(base64 -w 0 /tmp/x.klog)"
dd if=/dev/zero of=/tmp/image bs=1M count=32 status=none
disk=$(losetup -f --show /tmp/image)
klogger record -q --no-calibrate -a -s waits -s block -o /tmp/disk.klog -- \\
    dd if=/dev/zero of=$disk bs=4k count={WRITES} oflag=direct status=none
echo "requests $(base64 -w 0 /tmp/disk.klog)"
klogger record -q --no-calibrate -s waits -s peers -o /tmp/tcp.klog -- ./tcp late {ASKS}
echo "tcp $(base64 -w 0 /tmp/tcp.klog)"
klogger record -q --no-calibrate -s waits -o /tmp/epoll.klog -- python3 ./watcher.py {ASKS}
echo "epoll $(base64 -w 0 /tmp/epoll.klog)"
klogger record -q --no-calibrate -s timers -o /tmp/timers.klog -- sh -c '
    for what in {" ".join(ARMED)}; do ./timers $what {TIMES} 5000 || exit 1; done >/tmp/said'
echo "timers $(base64 -w 0 /tmp/timers.klog)"
"""


@pytest.fixture(scope="module")
def said(klogger, tmp_path_factory):
    folder = tmp_path_factory.mktemp("schemata")
    source = ROOT / "tests/live/why.c"
    subprocess.run(["cc", "-O1", "-pthread", source, "-o", folder / "why"], check=True)
    tcp = ROOT / "schemata/peers/workload.c"
    subprocess.run(["cc", "-O1", tcp, "-o", folder / "tcp"], check=True)
    timers = ROOT / "schemata/timers/workload.c"
    subprocess.run(["cc", "-O1", "-pthread", timers, "-o", folder / "timers"], check=True)
    shutil.copy(ROOT / "tests/live/watcher.py", folder)
    return folder, said_in_guest(klogger, folder, SCRIPT)


def test_the_verifier_takes_each_schema(said):
    _, lines = said
    assert [rest for word, rest in lines if word == "refused"] == []
    assert [rest for word, rest in lines if word == "recorded"] == SCHEMATA
    assert ("code", "7") in lines


def answered(klogger, said, word):
    """Of the log that follows this word."""
    folder, lines = said
    file = unpacked(dict(lines), word, folder / f"{word}.klog")
    report = folder / "why.json"
    subprocess.run(
        [sys.executable, "-m", "klogger_lab.cli.why", "--format", "json", "--report", report, file],
        env={**os.environ, "KLOGGER": str(klogger)}, check=True,
    )  # fmt: skip
    answer = json.loads(report.read_text())
    assert sum(one["ns"] for one in answer["bins"]) == answer["elapsed_ns"]
    return answer


def test_why_answers_of_an_older_kernel(klogger, said):
    answer = answered(klogger, said, "log")
    timers = [one for one in answer["bins"] if (one["group"], one["kind"]) == ("waited", "timer")]
    assert sum(one["times"] for one in timers) == TIMES


def test_requests_behind_waits_of_an_older_kernel(klogger, said):
    answer = answered(klogger, said, "requests")
    waits = [one for one in answer["bins"] if one["what"].startswith("write on loop0: write ")]
    # What the device does before the program waits is no wait.
    assert 0 < sum(one["times"] for one in waits) <= WRITES


def test_delayed_acknowledgements_of_an_older_kernel(klogger, said):
    answer = answered(klogger, said, "tcp")
    waits = {one["what"]: one["times"] for one in answer["bins"] if one["kind"] == "socket"}
    late = [what for what in waits if what.startswith("delayed acknowledgement of 127.0.0.1:")]
    assert [what.endswith(" (server)") for what in late] == [True], waits
    assert ASKS - 1 <= waits[late[0]] <= ASKS


def test_what_is_ready_of_an_epoll_of_an_older_kernel(klogger, said):
    answer = answered(klogger, said, "epoll")
    events = {one["what"].partition(" 127")[0] for one in answer["bins"] if one["kind"] == "events"}
    assert events == {"pipe (writer)", "eventfd (writer)", "socket (writer)", "socket"}


def test_ends_of_timers_of_an_older_kernel(klogger, said):
    folder, lines = said
    log = Log(klogger, unpacked(dict(lines), "timers", folder / "timers.klog"))
    ended = {}
    for what, (function, sort) in ARMED.items():
        where = f"fn_symbol LIKE '{function}%' AND pid IN (SELECT pid FROM process WHERE comm ="
        ended[what] = [
            log.count(f"{sort}_{end}", where + " 'timers')") for end in ("fired", "vain")
        ]
    # Of a sleep the kernel may take it back, and sleep again for the rest.
    assert ended["cancel"] == [0, TIMES]
    assert sum(ended["timerfd"]) == TIMES + 1
    for what in ("sleep", "socket"):
        fired, back = ended[what]
        assert fired <= TIMES <= fired + back
