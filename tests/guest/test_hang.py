# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The schema `hang` on Debian's kernel: a dead-lock of two kernel threads, which a module plants,
and the crash of a program that has mapped a display's memory, which hung in 2002.
"""

import re
import shutil

import pytest
from boots import BPF, Case
from kernels import HERE, headers, run
from oracles import Log, answers

pytestmark = pytest.mark.full("boots guests of its own")

SOURCE = HERE / "hang"
SCRIPT = r"""
set -e
klogger record -s hang -a -o /out/opposite.klog -- sh -c '
    insmod /hang/opposite.ko
    sleep 6
    for pid in $(pidof opposite-a opposite-b); do
        echo "$(cat /proc/$pid/comm) $pid $(sed -n "s/^State:.\(.\).*/\1/p" /proc/$pid/status)" \
            $(sed "s/^[^ ]* //; s/+.*//" /proc/$pid/stack) >>/out/stacks
    done
' 2>/out/opposite.err
dmesg | grep -o 'opposite: locks .*' >/out/locks
# SIGKILL ends their waits.
rmmod opposite
pidof opposite-a opposite-b >/out/left || true

insmod /hang/framebuffer.ko
[ -e /dev/framebuffer ]
echo /out/core >/proc/sys/kernel/core_pattern
echo 0 >/proc/sys/kernel/core_uses_pid
klogger record -s hang -o /out/crash.klog -- sh -c '
    crash_mapped /dev/framebuffer >/out/flags
    echo $? >/out/status
' 2>/out/crash.err
stat -c %s /out/core >/out/core_size
rm -f /out/core
rmmod framebuffer
"""


def built(request):
    """The folder of the modules and the program."""
    tree = headers()

    def build(made):
        work = made / "work"
        shutil.copytree(SOURCE, work)
        said = run(["make", "-C", tree, f"M={work}", "W=1", "modules"], work, whole=True)
        assert "warning" not in said, said
        for module in work.glob("*.ko"):
            run(["strip", "--strip-debug", module], work)
            shutil.copy(module, made)
        program = made / "crash_mapped"
        run(
            ["cc", "-O1", "-Wall", "-static", "-o", program, work / "crash_mapped.c"],
            work,
        )
        shutil.rmtree(work)

    return request.getfixturevalue("once")("hang", build)


def files(request) -> list[str]:
    made = built(request)
    return [f"{made}=/hang", f"{made / 'crash_mapped'}=/bin/crash_mapped"]


CASES = {"hang": Case(BPF, SCRIPT, files, seconds=600)}


@pytest.fixture(scope="module")
def recorded(boots):
    return boots.case("hang")


def planted(recorded) -> dict:
    """Of each of the module's threads its id, its state, and the functions of its stack."""
    lines = [line.split() for line in (recorded / "stacks").read_text().splitlines()]
    return {name: (int(pid), state, stack) for name, pid, state, *stack in lines}


def test_the_dead_lock_of_two_kernel_threads(recorded, klogger):
    log = Log(klogger, recorded / "opposite.klog")
    assert log.rows("SELECT event, text FROM ledger WHERE key = 'probe_not_attached'") == []
    threads = planted(recorded)
    assert {state for _, state, _ in threads.values()} == {"D"}
    (cycle,) = answers(klogger, recorded / "opposite.klog")["cycles"]
    names = {f"{name}[{pid}]" for name, (pid, _, _) in threads.items()}
    assert len(names) == 2
    assert set(cycle["threads"].split(" -> ")) == names
    locks = re.findall("[0-9a-f]{16}", (recorded / "locks").read_text())
    assert len(set(locks)) == 2
    assert set(cycle["locks"].split(" -> ")) == {f"0x{lock} (mutex)" for lock in locks}
    assert cycle["functions"] == "take_both -> take_both"
    assert cycle["open"] is True


def test_the_threads_are_found_asleep_with_their_stacks(recorded, klogger):
    log = Log(klogger, recorded / "opposite.klog")
    addresses = dict(log.rows("SELECT address, name FROM symbol")) if "symbol" in log.tables else {}
    for pid, _, stack in planted(recorded).values():
        (found,) = log.rows(f"SELECT frames, state, call FROM found WHERE pid = {pid} AND last")
        assert found[1:] == (0x102, -1)
        assert len([frame for frame in found[0] if frame]) == len(stack), addresses
        # As the kernel prints it, without the functions of the scheduler and of locks.
        (slept,) = log.rows(f"""
            SELECT list_transform(s.frames, lambda f: regexp_replace(f, '[+].*', ''))
            FROM sleeps JOIN stack AS s ON s.id = sleeps.stack WHERE pid = {pid}
            ORDER BY time DESC LIMIT 1
        """)
        assert slept[0][-len(stack) :] == stack


def test_the_module_ends(recorded):
    assert (recorded / "left").read_text() == ""


def test_a_crash_with_a_mapped_display_does_not_hang(recorded, klogger):
    assert (recorded / "status").read_text() == "134\n"
    flags = (recorded / "flags").read_text().split()
    # I/O, and not to be dumped.
    assert {"rd", "wr", "sh", "io", "pf", "dd"} <= set(flags)
    assert int((recorded / "core_size").read_text()) > 4096
    tables = answers(klogger, recorded / "crash.klog")
    assert tables["cycles"] == []
    # Nobody still slept when it had crashed; while the core is written, it may sleep for the disk.
    assert sum(row["open"] for row in tables["d_intervals"]) == 0
