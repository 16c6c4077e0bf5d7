# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Modules for Debian's kernel: built from every bundled schema, loaded in the guest; and what is
refused, and how.
"""

import shutil
import subprocess
from pathlib import Path

import kernels
import pytest
from boots import KERNEL, Case
from kernels import BUILT, HERE
from oracles import Log

pytestmark = pytest.mark.full("boots guests of its own")

OWN = HERE / "module"
SCRIPT = r"""
insmod /modules-under-test/klogger.ko || exit 3
for m in /modules-under-test/klogger_*.ko /my/my.ko; do insmod $m || echo "$m" >>/out/failed; done
ls /proc/sys/klogger >/out/events
klogger record --engine kernel -s /my/my.klogger -o /out/my.klog -- \
    sh -c 'echo 23 >/sys/module/my/parameters/requests' 2>/out/my.err
echo $? >/out/my.code
for m in /modules-under-test/klogger_*.ko /my/my.ko /modules-under-test/klogger.ko; do
    rmmod $(basename $m .ko) || echo "$m stays" >>/out/failed
done
dmesg | grep -E 'WARN|BUG|Oops|Call Trace' >/out/dmesg
true
"""


def files(request) -> list[str]:
    own = request.getfixturevalue("own_module")(OWN)
    return [f"{request.getfixturevalue('modules')()}=/modules-under-test", f"{own}=/my"]


CASES = {"modules": Case(KERNEL, SCRIPT, files, seconds=400)}


@pytest.fixture(scope="module")
def headers() -> Path:
    return kernels.headers()


def run(*words, cwd=None):
    return subprocess.run(words, check=False, capture_output=True, text=True, cwd=cwd, timeout=600)


def test_a_module_for_each_schema(modules):
    names = {path.name for path in modules().glob("*.ko")}
    assert names == {"klogger.ko", *(f"klogger_{Path(schema).stem}.ko" for schema in BUILT)}


def test_they_load_and_a_module_of_ones_own_logs(boots, klogger):
    out = boots.case("modules")
    assert not (out / "failed").exists(), (out / "failed").read_text()
    assert (out / "dmesg").read_text() == ""
    assert {"SCHEDOUT", "REQUEST", "OPENED"} <= set((out / "events").read_text().split())
    assert (out / "my.code").read_text() == "0\n", (out / "my.err").read_text()
    text = run(klogger, "cat", out / "my.klog").stdout
    named = Log(klogger, out / "my.klog").rows(
        "SELECT first, number, bad, last FROM named ORDER BY number"
    )
    short = "a text of 64 bytes: " + "0123456789" * 4 + "0123"
    long = "".join(str(n % 10) for n in range(88)) * 4
    assert named == [('one "text"', n, "", long[:300] if n % 2 else short) for n in range(23)]
    assert text.count(" REQUEST") == 23 and text.count(" DONE") == 23, text


def refused(klogger, headers, folder, body):
    """What is said of a schema with one event A { int x } and these probes."""
    schema = folder / "bad.klogger"
    schema.write_text('schema bad "x"\nevent A { int x }\n' + body + "\n")
    done = run(klogger, "build", "-s", schema, "--kernel", headers, "-o", folder / "out")
    assert done.returncode == 2, done.stdout + done.stderr
    assert not (folder / "out").exists()
    return done.stderr


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            "probe tracepoint sched_waking(int pid) { klogger(A, pid); }",
            ["the prototype of 'sched_waking' is not the kernel's",
             "schema: tracepoint sched_waking(int)",
             "kernel: tracepoint sched_waking(struct task_struct *)", "bad.klogger:3:"],
        ),
        (
            "probe tracepoint sched_waking(struct task_struct *p, int x) { klogger(A, x); }",
            ["the prototype of 'sched_waking' is not the kernel's"],
        ),
        (
            "probe tracepoint sched_wakign(struct task_struct *p) { klogger(A, p->pid); }",
            ["have no tracepoint 'sched_wakign'"],
        ),
        (
            "probe tracepoint sched_waking(struct task_struct *p) {\n    klogger(A, p->pidd);\n}",
            ["has no member named 'pidd'", "bad.klogger:4:"],
        ),
        (
            "probe tracepoint sched_waking(struct task_struct *p) { klogger(A, task_prio(p)); }",
            ["'task_prio'", "bad.klogger:"],
        ),
        (
            "probe return vfs_read(long result, int x) { klogger(A, x); }",
            ["one parameter, the result"],
        ),
        (
            "probe timer 99Hz() { klogger(A, 1); }",
            ["the kernel engine does not attach probes of kind 'timer'"],
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_of_the_schema(klogger, headers, tmp_path, body, words):
    said = refused(klogger, headers, tmp_path, body)
    for word in words:
        assert word in said, said


def test_what_is_no_kernel_is_refused(klogger, tmp_path):
    for folder, message in [
        (tmp_path, "is not a kernel build tree"),
        (tmp_path / "none", "there is no folder"),
    ]:
        done = run(klogger, "build", "--kernel", folder, "-o", tmp_path / "out")
        assert done.returncode == 2
        assert message in done.stderr and "help:" in done.stderr, done.stderr


def test_no_make_no_modules(klogger, headers, tmp_path):
    gcc = shutil.which("gcc-12") or shutil.which("gcc")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / Path(gcc).name).symlink_to(gcc)
    done = subprocess.run(
        [klogger, "build", "-s", "scheduler", "--kernel", headers, "-o", tmp_path / "out"],
        check=False, capture_output=True, text=True,
        env={"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 2
    assert (
        "make, which is not installed" in done.stderr and "apt-get install make" in done.stderr
    ), done.stderr


def test_without_the_compiler_of_the_kernel(klogger, headers, tmp_path):
    done = subprocess.run(
        [klogger, "build", "--kernel", headers, "-o", tmp_path / "out"],
        check=False, capture_output=True, text=True,
        env={"PATH": str(tmp_path), "HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 2
    assert "was compiled by gcc" in done.stderr and "apt-get install gcc-" in done.stderr, (
        done.stderr
    )
