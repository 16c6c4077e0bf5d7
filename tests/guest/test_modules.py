# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Modules for Debian's kernel: built from every bundled schema, loaded in the guest; and what is
refused, and how.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
BUNDLED = sorted(path.stem for path in ROOT.glob("schemata/*/*.klogger"))
PLACES = ROOT / "tests/golden/kernel/places.klogger"


@pytest.fixture(scope="module")
def headers():
    """Of the newest Debian kernel that there are headers of."""
    found = sorted(Path("/usr/src").glob("linux-headers-6.1.*-amd64"))
    if not found:
        pytest.skip("no headers of Debian's 6.1 kernel: apt-get install linux-headers-amd64")
    return found[-1]


def run(*words, cwd=None):
    return subprocess.run(words, check=False, capture_output=True, text=True, cwd=cwd, timeout=600)


@pytest.fixture(scope="module")
def modules(klogger, headers, tmp_path_factory):
    """All in one build; and a module of the user's own."""
    out = tmp_path_factory.mktemp("modules")
    schemas = [word for name in [*BUNDLED, str(PLACES)] for word in ("-s", name)]
    done = run(klogger, "build", *schemas, "--kernel", headers, "-o", out)
    assert done.returncode == 0, done.stdout + done.stderr
    own = out / "own"
    shutil.copytree(ROOT / "tests/guest/module", own)
    made = run(klogger, "gen", "--engine", "kernel", "my.klogger", "-o", ".", cwd=own)
    assert made.returncode == 0, made.stderr
    made = run(
        "make",
        "-C",
        headers,
        f"M={own}",
        f"KBUILD_EXTRA_SYMBOLS={out}/Module.symvers",
        "W=1",
        "modules",
        cwd=own,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    assert "warning" not in made.stderr, made.stderr
    shutil.copy(own / "my.ko", out)
    shutil.copy(own / "my.klogger", out)
    shutil.rmtree(own)
    return out


def test_a_module_for_each_schema(modules):
    names = {path.name for path in modules.glob("*.ko")}
    assert names == {
        "klogger.ko",
        "my.ko",
        *(f"klogger_{name}.ko" for name in [*BUNDLED, "places"]),
    }


def test_they_load_and_a_module_of_ones_own_logs(guest, klogger, modules, tmp_path):
    script = r"""
    insmod /m/klogger.ko || exit 3
    for m in /m/klogger_*.ko /m/my.ko; do insmod $m || echo "$m" >>/out/failed; done
    ls /proc/sys/klogger >/out/events
    klogger record --engine kernel -s /m/my.klogger -o /out/my.klog -- \
        sh -c 'echo 23 >/sys/module/my/parameters/requests' 2>/out/my.err
    echo $? >/out/my.code
    for m in /m/klogger_*.ko /m/my.ko /m/klogger.ko; do
        rmmod $(basename $m .ko) || echo "$m stays" >>/out/failed
    done
    dmesg | grep -E 'WARN|BUG|Oops|Call Trace' >/out/dmesg
    true
    """
    done = guest(script, tmp_path, timeout=400, add=[f"{modules}=/m"], single=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not (tmp_path / "failed").exists(), (tmp_path / "failed").read_text()
    assert (tmp_path / "dmesg").read_text() == ""
    assert {"SCHEDOUT", "REQUEST", "OPENED"} <= set((tmp_path / "events").read_text().split())
    assert (tmp_path / "my.code").read_text() == "0\n", (tmp_path / "my.err").read_text()
    text = run(klogger, "cat", tmp_path / "my.klog").stdout
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
            ["the prototype of 'sched_waking' is not the kernel's", "schema: tracepoint sched_waking(int)",
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
        (tmp_path, "is no kernel build tree"),
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
        check=False, capture_output=True, text=True, env={"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 2
    assert (
        "make, which is not installed" in done.stderr and "apt-get install make" in done.stderr
    ), done.stderr


def test_without_the_compiler_of_the_kernel(klogger, headers, tmp_path):
    done = subprocess.run(
        [klogger, "build", "--kernel", headers, "-o", tmp_path / "out"],
        check=False, capture_output=True, text=True, env={"PATH": str(tmp_path), "HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 2
    assert "was compiled by gcc" in done.stderr and "apt-get install gcc-" in done.stderr, (
        done.stderr
    )
