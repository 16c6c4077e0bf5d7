# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The very program that records the live kernel gives the same answers on Debian's 6.1, with the
same oracles.
"""

import oracles
import pytest
from boots import BPF, Case
from oracles import Log, workload_json

pytestmark = pytest.mark.full("boots guests of its own")

RUNS = {
    "pingpong": "pingpong 3000 processes 0",
    "threads": "pingpong 3000 threads",
    "spinners": "spinners 3 1500 0",
    "sleepers": "sleepers 3 53 2000",
    "forks": "forks 23",
    "flood": "flood 30000 -1",
}


SCRIPT = "uname -r >/out/kernel\n" + "".join(
    f"klogger record -s scheduler -o /out/{name}.klog -- {command}"
    f" >/out/{name}.json 2>/out/{name}.err\n"
    f"echo $? >/out/{name}.code\n"
    for name, command in RUNS.items()
)
CASES = {"debian": Case(BPF, SCRIPT, seconds=600)}


@pytest.fixture(scope="module")
def recorded(boots):
    return boots.case("debian")


def log_of(recorded, klogger, name):
    assert (recorded / f"{name}.code").read_text() == "0\n", (recorded / f"{name}.err").read_text()
    return Log(klogger, recorded / f"{name}.klog"), workload_json(
        (recorded / f"{name}.json").read_text()
    )


def test_it_is_debians_kernel(recorded, klogger):
    kernel = (recorded / "kernel").read_text().strip()
    assert kernel.startswith("6.1.")
    log, _ = log_of(recorded, klogger, "forks")
    assert log.meta["preamble"]["host"]["kernel"] == kernel


@pytest.mark.parametrize("name", ["pingpong", "threads", "spinners", "sleepers"])
def test_threads(recorded, klogger, name):
    log, report = log_of(recorded, klogger, name)
    oracles.check_whole(log)
    oracles.check_threads(log, report, oracles.EMULATED)


def test_forks(recorded, klogger):
    log, report = log_of(recorded, klogger, "forks")
    oracles.check_whole(log)
    oracles.check_forks(log, report, 23)


def test_renames(recorded, klogger):
    log, report = log_of(recorded, klogger, "flood")
    for thread in report["threads"]:
        assert (
            log.count("PROCESS_RENAME", f"pid = {thread['tid']}") + log.lost("PROCESS_RENAME")
            >= thread["count"]
        )
    oracles.check_serials(log)
    oracles.check_lost_sums(log)


def test_same_events_as_here(recorded, klogger):
    """Every event of the schema can be recorded there."""
    log, _ = log_of(recorded, klogger, "forks")
    missing = log.rows("SELECT event, text FROM ledger WHERE key = 'probe_not_attached'")
    assert missing == []
