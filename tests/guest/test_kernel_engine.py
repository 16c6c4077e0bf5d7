# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The kernel engine in a guest with Debian's kernel: its modules are built here and loaded there.

All that one boot can show is done by kernel_engine.sh before the tests look at the logs.
"""

import subprocess
from pathlib import Path

import oracles
import pytest
from boots import KERNEL, Case
from kernels import FLOOD
from oracles import Log, workload_json

pytestmark = pytest.mark.full("boots guests of its own")

HERE = Path(__file__).parent
FLOOD_EVENTS = ("FLOOD", "FLOOD_WIDE")
CPUS = 2
# Recordings of one workload by both engines, which is each time what the command does and nothing
# else.
TWICE = {
    "pingpong": "pingpong 997 processes 0",
    "threads": "pingpong 499 threads",
    "forks": "forks 23",
}
SCRIPT = f"""
. /kernel_engine.sh
both pingpong {TWICE["pingpong"]}
both_the_other_way threads {TWICE["threads"]}
both forks {TWICE["forks"]}
of_command spinners -s scheduler -- spinners 3 701 0
of_command lossless -s /flood.klogger --buffer-size 16M -- flood 10007 -1
of_command lossy -s /flood.klogger --buffer-size 64K -- flood 100003 -1
of_command newest -s /flood.klogger --buffer-size 64K --overwrite -- flood 50021 0
switched
resized
dumped
killed
bad_input
dmesg >/out/dmesg
cat /proc/modules >/out/modules
"""


# Of a kernel that takes none but signed modules, from then on.
UNSIGNED = """
echo 1 >/sys/module/module/parameters/sig_enforce
cat /sys/module/module/parameters/sig_enforce >/out/enforced
klogger record --engine kernel --modules /modules-under-test -s scheduler -- true 2>/out/err
echo $? >/out/code
"""


def files(request) -> list[str]:
    return [
        f"{request.getfixturevalue('modules')()}=/modules-under-test",
        f"{FLOOD}=/flood.klogger",
        f"{HERE / 'kernel_engine.sh'}=/kernel_engine.sh",
    ]


CASES = {
    "kernel-engine": Case(KERNEL, SCRIPT, files, seconds=400),
    "unsigned": Case(KERNEL, UNSIGNED, files, seconds=60, last=True),
}


@pytest.fixture(scope="module")
def recorded(boots) -> Path:
    return boots.case("kernel-engine")


@pytest.fixture
def log(recorded, klogger):
    def read(name: str) -> Log:
        said = recorded / f"{name}.err"
        assert (recorded / f"{name}.klog").exists(), (
            said.read_text() if said.exists() else "no such recording"
        )
        return Log(klogger, recorded / f"{name}.klog")

    return read


def report(recorded, name: str) -> dict:
    return workload_json((recorded / f"{name}.json").read_text())


def of_command(recorded, log, name: str) -> tuple[Log, dict]:
    assert (recorded / f"{name}.code").read_text() == "0\n", (recorded / f"{name}.err").read_text()
    return log(name), report(recorded, name)


def fields(log: Log, event: str) -> list[str]:
    layouts = {layout["name"]: layout for layout in log.meta["preamble"]["events"]}
    return [field["name"] for field in layouts[event]["fields"]]


def story(log: Log, tid: int) -> list:
    """What the log has of one thread, in order: each event, and all its fields."""
    told = []
    for event, who in (
        ("SCHEDOUT", "pid"),
        ("SCHEDIN", "pid"),
        ("FORK", "parent"),
        ("EXIT", "pid"),
        ("EXEC", "pid"),
    ):
        names = ", ".join(f'"{name}"' for name in fields(log, event))
        rows = log.rows(f'SELECT time, {names} FROM "{event.lower()}" WHERE "{who}" = {tid}')
        told += [(row[0], event, row[1:]) for row in rows]
    return [(event, values) for _, event, values in sorted(told, key=lambda row: row[0])]


@pytest.mark.parametrize("name", TWICE)
def test_both_engines_tell_the_same(recorded, log, name):
    """Every thread of the workload: the same events with the same values in the same order."""
    everything, tree = log(f"{name}-all"), log(f"{name}-tree")
    engines = {everything.meta["preamble"]["engine"], tree.meta["preamble"]["engine"]}
    assert engines == {"bpf", "kernel"}
    said = report(recorded, name)
    tids = said["children"] if name == "forks" else [thread["tid"] for thread in said["threads"]]
    assert tids
    for tid in tids:
        told = story(tree, tid)
        assert len(told) > 2
        assert told == story(everything, tid), tid
    for both in (everything, tree):
        oracles.check_whole(both)
        oracles.check_serials(both)


def test_counts_are_the_kernels_own(recorded, log):
    spun, said = of_command(recorded, log, "spinners")
    oracles.check_whole(spun)
    oracles.check_threads(spun, said, oracles.EMULATED)
    oracles.check_forks(log("forks-all"), report(recorded, "forks"), 23)


def test_the_log_says_how_it_came_about(recorded, log, klogger):
    spun, _ = of_command(recorded, log, "spinners")
    preamble = spun.meta["preamble"]
    assert preamble["engine"] == "kernel"
    probes = {probe["target"]: probe["attached"] for probe in preamble["probes"]}
    assert probes["tracepoint sched_switch"] is True
    info = subprocess.run(
        [klogger, "info", spun.path], check=True, capture_output=True, text=True
    ).stdout
    assert "kernel by klogger" in info


def test_the_log_says_what_its_events_take(recorded, log):
    """Each engine measures its own before it records: under emulation perhaps too unevenly, which
    it then says.
    """
    for name in ("spinners", "pingpong-tree"):
        found = log(name)
        costs = found.meta["preamble"]["costs"]
        names = [e["name"] for e in found.meta["preamble"]["events"] if e["schema"] == "scheduler"]
        assert [e["event"] for e in costs["events"]] == names
        assert costs["hits"] >= 1000
        # The bpf engine measures its empty probe and its clock too. What was too uneven is left
        # out, and said.
        bases = [
            costs[base] for base in ("probe", "hit") if found.meta["preamble"]["engine"] == "bpf"
        ]
        wanted = bases + [e["cost"] for e in costs["events"]]
        measured = [cost for cost in wanted if cost]
        assert all(0 < c["low"] <= c["ns"] <= c["high"] for c in measured)
        assert (len(measured) == len(wanted)) == (costs["why"] == "")


def test_a_prime_number_of_events(recorded, log):
    flood, said = of_command(recorded, log, "lossless")
    assert len(said["threads"]) == CPUS
    for thread in said["threads"]:
        for event in FLOOD_EVENTS:
            assert flood.count(event, f"pid = {thread['tid']}") == 10007
    oracles.check_whole(flood)
    oracles.check_serials(flood)


def test_losses_are_exact(recorded, log, klogger):
    flood, _ = of_command(recorded, log, "lossy")
    for event in FLOOD_EVENTS:
        assert flood.lost(event) > 0, "the flood was no flood"
        # The floods' own changes of name, and those at the beginning of the command.
        renames = flood.count("PROCESS_RENAME") + flood.lost("PROCESS_RENAME")
        assert flood.count(event) + flood.lost(event) == renames >= CPUS * 100003
    oracles.check_lost_sums(flood)
    oracles.check_serials(flood)
    oracles.check_order(klogger, flood.path)


def test_overwrite_keeps_the_newest(recorded, log):
    flood, said = of_command(recorded, log, "newest")
    tid = said["threads"][0]["tid"]
    ((first, last, kept),) = flood.rows(
        f"SELECT min(serial), max(serial), count(*) FROM flood WHERE pid = {tid}"
    )
    assert 100 < kept < 50021
    assert last >= 3 * 50021 - 3
    assert last - first == 3 * (kept - 1)


def test_a_flight_recorder_is_read_while_it_flies(recorded, log):
    flown = log("dumped")
    assert flown.one("SELECT max(index) FROM dump_begin") >= 3
    # Between dumps events have given way to newer ones, but none is there twice.
    union = " UNION ALL ".join(
        f"SELECT cpu, serial FROM {event}" for event in (*FLOOD_EVENTS, "PROCESS_RENAME")
    )
    assert flown.rows(f"SELECT cpu, serial FROM ({union}) GROUP BY ALL HAVING count(*) > 1") == []
    names = {
        name
        for (name,) in flown.rows("SELECT DISTINCT name FROM flood_wide WHERE name LIKE 'flood-%'")
    }
    assert names == {"flood-even", "flood-odd"}
    assert flown.rows("SELECT text FROM ledger WHERE key = 'block_corrupt'") == []
    # A dump shuts nothing out.
    assert flown.rows("SELECT event, count FROM ledger WHERE severity = 'loss'") == []


def test_events_are_switched(log):
    switched = log("switched")
    marks = dict(switched.rows("SELECT number, time FROM mark"))
    assert set(marks) == {1, 2, 3, 4}
    assert switched.one("SELECT text FROM mark WHERE number = 3") == "off by the file"
    for event, begin, end in (("SCHEDOUT", 1, 2), ("SCHEDIN", 3, 4)):
        assert switched.count(event, f"time > {marks[begin]} AND time < {marks[end]}") == 0
        assert switched.count(event, f"time < {marks[begin]}") > 0
        assert switched.count(event, f"time > {marks[end]}") > 0
    assert switched.count("SCHEDIN", f"time > {marks[1]} AND time < {marks[2]}") > 0
    states = switched.rows("SELECT state FROM logging_event WHERE name = 'SCHEDIN' ORDER BY time")
    assert [state for (state,) in states] == [1, 0, 1]


def test_rings_are_exchanged_without_loss_of_count(recorded, log, klogger):
    resized = log("resized")
    assert not (recorded / "resized.refused").exists(), (recorded / "resized.refused").read_text()
    tids = ", ".join(str(thread["tid"]) for thread in report(recorded, "resized")["threads"])
    for event in FLOOD_EVENTS:
        own = resized.count(event, f"pid IN ({tids})")
        # Others have changed their names a few times, and that may be what was lost.
        assert 0 <= own + resized.lost(event) - CPUS * 60013 <= 100, (event, own)
    oracles.check_serials(resized)
    oracles.check_lost_sums(resized)
    oracles.check_order(klogger, resized.path)
    # A thread that did not run in time is the emulator's affair; a lack of buffers would be ours.
    bad = "key = 'block_corrupt' OR key = 'drain_late' AND text LIKE '%no buffer%'"
    assert resized.rows(f"SELECT text FROM ledger WHERE {bad}") == []


def test_a_killed_recorder_leaves_a_kernel_that_works(recorded, log, klogger):
    assert (recorded / "killed.modules").read_text() == "2\n"
    flood, said = of_command(recorded, log, "after-killed")
    tid = said["threads"][0]["tid"]
    assert flood.count("FLOOD", f"pid = {tid}") == 1009
    assert (recorded / "after-killed.modules").read_text() == "0\n"
    # What it had written can be read.
    assert Log(klogger, recorded / "killed.klog").meta["preamble"]["engine"] == "kernel"


def test_what_was_loaded_before_stays(recorded, log):
    flood, said = of_command(recorded, log, "resident")
    assert flood.count("FLOOD", f"pid = {said['threads'][0]['tid']}") == 11
    assert (recorded / "resident.modules").read_text() == "2\n"
    assert "klogger" not in (recorded / "modules").read_text()


REFUSED = {
    "no-modules": ["cannot open the module /tmp/empty/klogger.ko", "klogger build"],
    "other-kernel": [
        "/tmp/foreign/klogger.ko",
        "made for another kernel than 6.1.",
        "klogger build",
    ],
    "no-headers": ["help:"],
    "memory": ["MiB", "--buffer-size"],
    "modules-for-bpf": ["--modules is for the kernel engine", "--engine kernel"],
    "busy": ["another recording uses the kernel engine"],
    "other-version": ["belongs to another version of klogger", "rmmod klogger"],
    "other-text": ["the kernel has another text of schema 'flood'", "rmmod klogger_flood"],
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_refused_in_words(recorded, name):
    said = (recorded / f"refused-{name}.err").read_text()
    assert (recorded / f"refused-{name}.code").read_text() == "2\n", said
    for words in REFUSED[name]:
        assert words in " ".join(said.split()), said


def test_the_kernel_has_nothing_to_complain_of(recorded):
    complaints = (
        "WARNING:",
        "BUG:",
        "Oops",
        "general protection",
        "scheduling while atomic",
        "rcu_sched self-detected",
    )
    lines = (recorded / "dmesg").read_text().splitlines()
    assert [line for line in lines if any(word in line for word in complaints)] == []


def test_unsigned_modules_are_refused(boots):
    """By a kernel that takes none but signed ones."""
    out = boots.case("unsigned")
    assert (out / "enforced").read_text() == "Y\n"
    said = (out / "err").read_text()
    assert (out / "code").read_text() == "2\n", said
    assert "not signed" in said and "mokutil" in said
