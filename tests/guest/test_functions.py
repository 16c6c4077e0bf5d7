# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Probes in functions of Debian's kernel, against the hits that ftrace counts, and a program that
makes known numbers of calls; and the messages about functions that cannot be probed.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter

import pytest
from kernels import HERE, cache

pytestmark = pytest.mark.full("boots guests of its own")

ALLOCATED, REFUSED, MAPPED, TRUNCATED = 211, 37, 53, 29
# Made and removed in an ext4 file system.
FILES = 41
# The command of klogger guest: it sees this machine's files, clang too.
SCRIPT = """
tracing=/sys/kernel/tracing
[ -e $tracing/kprobe_events ] || mount -t tracefs tracefs $tracing
echo 'p:oracle vfs_fallocate' >$tracing/kprobe_events
echo 1 >$tracing/events/kprobes/oracle/enable
klogger record -s ./calls.klogger -o /tmp/x.klog -- ./work {calls} || exit 1
echo "ftrace $(grep -w oracle $tracing/kprobe_profile)"
klogger cat /tmp/x.klog --event ENTRY,EXIT,MAPPED,MAPPED_AT --format json | sed 's/^/log /'
klogger cat /tmp/x.klog --event PLACED | sed 's/^/text /'
klogger info /tmp/x.klog | sed 's/^/info /'
three='/sbin/losetup -f; /sbin/losetup -f; /sbin/losetup -f'
klogger record -s ./module.klogger -o /tmp/y.klog -- /bin/sh -c "$three" 2>&1 | sed 's/^/note /'
klogger cat /tmp/y.klog --event CONTROL,CONTROL_END --format json | sed 's/^/log /'
truncate -s 64M /tmp/disk && /sbin/mkfs.ext4 -q -F /tmp/disk || exit 1
klogger check ./ext4.klogger 2>&1 | sed 's/^/without /'
klogger record -s ./ext4.klogger -a -o /tmp/z.klog -- sh ./ext4.sh {files} 2>&1 || exit 1
klogger cat /tmp/z.klog --event BLOCKS,NEW,NEW_END,UNLINK --format json | sed 's/^/log /'
klogger cat /tmp/z.klog --event PLACE | sed 's/^/ext4 /'
klogger places ext4_unlink_enter | sed 's/^/places /'
klogger check ./ext4.klogger >/dev/null 2>&1; echo "checked $?"
changed=$(grep -o ' t [a-z_0-9]*\\.isra\\.0$' /proc/kallsyms | head -1)
changed=${{changed# t }}
changed=${{changed%.isra.0}}
for target in "function vfs_fallocat" "function do_syscall_64" "function vfs_fallocate" \
    "return do_mmap" "function $changed"; do
    case $target in
    *fallocate) parameters='struct inode *inode' ;;
    return*) parameters='unsigned long result, struct file *file' ;;
    *) parameters= ;;
    esac
    echo "event A {{ }} probe $target($parameters) {{ klogger(A); }}" >/tmp/bad.klogger
    klogger check /tmp/bad.klogger 2>&1 | sed 's/^/check /'
done
"""


@pytest.fixture(scope="module")
def said(klogger, tmp_path_factory):
    """What the guest printed: lists of lines by their first word."""
    if not list((cache() / "guest").glob("linux-image-*.deb")):
        pytest.skip("no kernel for a guest: run 'scripts/setup guest'")
    folder = tmp_path_factory.mktemp("functions")
    for name in ("calls.klogger", "module.klogger", "ext4.klogger", "ext4.sh"):
        shutil.copy(HERE / "functions" / name, folder)
    work = ["cc", "-O1", "-static", "-o", folder / "work", HERE / "functions/work.c"]
    subprocess.run(work, check=True)
    calls = f"{ALLOCATED} {REFUSED} {MAPPED} {TRUNCATED}"
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "klogger_lab.cli.guest",
            "--",
            "sh",
            "-c",
            SCRIPT.format(calls=calls, files=FILES),
        ],
        check=False,
        cwd=folder,
        env={**os.environ, "KLOGGER": str(klogger), "KLOGGER_CACHE": str(cache())},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    words = {}
    for line in done.stdout.splitlines():
        first, _, rest = line.partition(" ")
        words.setdefault(first, []).append(rest)
        words.setdefault("all", []).append(line)
    return words


@pytest.fixture(scope="module")
def logged(said):
    events = {}
    for line in said["log"]:
        event = json.loads(line)
        events.setdefault(event["event"], []).append(event)
    return events


def test_hits_are_those_that_ftrace_counts(said, logged):
    _, hits, missed = said["ftrace"][0].split()
    assert (int(hits), int(missed)) == (ALLOCATED + REFUSED, 0)
    assert len(logged["ENTRY"]) == len(logged["EXIT"]) == int(hits)


def test_arguments_and_results(said, logged):
    lengths = [4096 + i for i in range(ALLOCATED)] + [1 + i for i in range(REFUSED)]
    inode = int(said["inode"][0])
    for name in ("ENTRY", "EXIT"):
        assert [event["length"] for event in logged[name]] == lengths
        assert {event["inode"] for event in logged[name]} == {inode}
    results = Counter(event["result"] for event in logged["EXIT"])
    assert results == {0: ALLOCATED, -9: REFUSED}


def test_a_function_with_eight_arguments(logged):
    """By a kprobe and a kretprobe, which see the first arguments, and the result."""
    mapped = [event["length"] for event in logged["MAPPED"]]
    assert mapped.count(0x1234000) == MAPPED
    assert len(logged["MAPPED_AT"]) == len(mapped)
    assert all(event["address"] % 4096 == 0 for event in logged["MAPPED_AT"])


def test_two_functions_with_one_body(said):
    points = Counter(re.findall(r"point=(\w+)", "\n".join(said["text"])))
    assert points["vfs_fallocate"] == ALLOCATED + REFUSED
    # The program's own, and none that ftruncate() does not do.
    assert points["do_truncate"] >= TRUNCATED or "do_truncate" not in points
    info = re.sub(r"\s+", " ", " ".join(said["info"]))
    assert "places: do_truncate, vfs_fallocate" in info


def test_a_function_of_a_module(logged):
    """Each losetup asks for a free device once."""
    tids = [event["tid"] for event in logged["CONTROL"]]
    assert len(set(tids)) == len(tids) == 3
    assert [event["tid"] for event in logged["CONTROL_END"]] == tids


def test_the_module_is_loaded_before_the_recording(said):
    assert said["note"][0] == "klogger: loaded the kernel module 'loop'"
    assert "klogger: loaded the kernel module 'ext4'" in said["all"]


def test_typed_arguments_of_a_module(logged):
    """By fentry, with a structure that only the module has."""
    assert [event["command"] for event in logged["CONTROL"]] == [0x4C82] * 3


def test_tracepoints_and_functions_of_a_module_are_those_of_ftrace(said, logged):
    """Arguments too: of allocations their lengths, in the order of the hits on each CPU."""
    lengths = sorted(int(line) for line in said["requested"])
    assert len(lengths) >= FILES
    assert sorted(event["length"] for event in logged["BLOCKS"]) == lengths
    _, hits, missed = said["new"][0].split()
    assert len(logged["NEW"]) == len(logged["NEW_END"]) == int(hits)
    assert int(missed) == 0
    assert all(event["block"] > 0 for event in logged["NEW_END"])
    unlinked = [event["name"] for event in logged["UNLINK"]]
    assert unlinked == [f"file{i}" for i in range(FILES)]
    points = Counter(re.findall(r"point=(\w+)", "\n".join(said["ext4"])))
    assert points == {"ext4_unlink": FILES, "ext4_rmdir": 1}


def test_modules_are_listed_and_checked(said):
    expected = "ext4:ext4_unlink_enter(struct inode *parent, struct dentry *dentry)"
    assert said["places"][0] == expected
    text = re.sub(r"[\s│]+", " ", " ".join(said["without"]))
    assert "this kernel has no tracepoint 'ext4_request_blocks'" in text
    assert said["checked"] == ["0"]


def test_messages(said):
    text = re.sub(r"[\s│]+", " ", " ".join(said["check"]))
    for message in (
        "this kernel has no function 'vfs_fallocat', or it was inlined",
        "did you mean vfs_fallocate",
        "this kernel excludes the function 'do_syscall_64' from tracing (notrace)",
        "the prototype of 'vfs_fallocate' is not the kernel's",
        "kernel: function vfs_fallocate(struct file *, int, loff_t, loff_t)",
        "function 'do_mmap' has more than six arguments, which fentry and fexit do not take",
    ):
        assert message in text
    assert re.search(
        r"the compiler has replaced the function '\w+' of this kernel by '\w+\.isra", text
    )
    assert text.count("×") == 5
