# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Schemata whose C needs what this kernel does not have: left out if there are alternatives,
refused by name and reason if not, and decided in C.
"""

import re

import pytest

HEAD = """schema other
event GOOD { int tid as thread }
event NEW { int value }
probe tracepoint sched_process_exit(struct task_struct *p) { klogger(GOOD, p->pid); }
"""
# What is in the way, by the body of a probe.
LACKING = {
    "p->klogger_no_member": "this kernel's struct task_struct has no member 'klogger_no_member'",
    "((struct klogger_gone *)p)->x": "this kernel has no struct klogger_gone",
    "KLOGGER_NO_CONSTANT": "this kernel has no constant 'KLOGGER_NO_CONSTANT'",
}
# As in a kernel whose structure has a member that this one's lacks.
OTHER = """code {
    struct task_struct___other { int no_such; } __attribute__((preserve_access_index));
}
"""


@pytest.fixture
def schema(tmp_path):
    def write(probe, code=""):
        path = tmp_path / "other.klogger"
        path.write_text(f"{HEAD}{code}{probe}\n")
        return path

    return write


def words(text):
    return re.sub(r"[\s│]+", " ", text)


def events(recorder, log):
    done = recorder.command("cat", log, "--event", "GOOD,NEW")
    assert done.code == 0, done.err
    return re.findall(r"\b(GOOD|NEW)\b", done.out)


@pytest.mark.full("others of this file are in the gate")
@pytest.mark.parametrize("value", LACKING)
def test_an_alternative_is_left_out(recorder, schema, clean_kernel, value):
    probe = "probe tracepoint sched_process_fork(struct task_struct *p) or tracepoint no_such() {"
    path = schema(f"{probe} klogger(NEW, {value}); }}")
    done, log = recorder.run("-s", path, "--", "sh", "-c", "true; true")
    assert done.code == 0, done.err
    assert LACKING[value] in words(recorder.command("info", log).out)
    assert set(events(recorder, log)) == {"GOOD"}
    checked = recorder.command("check", path)
    assert checked.code == 0
    assert "left out on this kernel: C: " in words(checked.err)


def test_the_next_alternative_is_used(recorder, schema, clean_kernel):
    head = "probe tracepoint klogger_no_such(struct klogger_gone *p)"
    path = schema(
        f"{head} or tracepoint sched_process_fork(struct task_struct *p) {{\n"
        "    klogger(NEW, p->pid);\n}"
    )
    done, log = recorder.run("-s", path, "--", "sh", "-c", "/bin/true; true")
    assert done.code == 0, done.err
    assert set(events(recorder, log)) == {"GOOD", "NEW"}


def test_without_an_alternative_it_is_refused(recorder, schema, clean_kernel):
    path = schema(
        "probe tracepoint sched_process_fork(struct task_struct *p) {\n"
        "    klogger(NEW, p->klogger_no_member);\n}"
    )
    done, _ = recorder.run("-s", path, "--", "true")
    assert done.code == 2
    text = words(done.err)
    assert "C: no member named 'klogger_no_member' in 'struct task_struct'" in text
    assert "other.klogger:6:" in text


def test_a_member_that_only_other_kernels_have(recorder, schema, clean_kernel):
    probe = (
        "probe tracepoint sched_process_fork(struct task_struct *p) {\n"
        "    struct task_struct___other *other = (void *)p;\n"
        "    if (klogger_has_member(struct task_struct___other, no_such))\n"
        "        klogger(NEW, other->no_such);\n}"
    )
    done, log = recorder.run("-s", schema(probe, OTHER), "--", "sh", "-c", "/bin/true; true")
    assert done.code == 0, done.err
    assert set(events(recorder, log)) == {"GOOD"}


def test_a_program_of_another_kernel(recorder, schema, clean_kernel):
    """As those of bundled schemata: loading finds out."""
    head = "probe tracepoint sched_process_fork(struct task_struct *p)"
    body = "{\n    klogger(NEW, ((struct task_struct___other *)p)->no_such);\n}"
    lacks = "this kernel's struct task_struct has no member 'no_such'"
    path = schema(f"{head} {body}", OTHER)
    done, _ = recorder.run("-s", path, "--", "true")
    assert done.code == 2
    place = "the kernel refuses tracepoint sched_process_fork"
    assert f"{place}: {lacks}" in words(done.err)
    loaded = recorder.command("check", "--load", path)
    assert loaded.code == 2
    assert lacks in words(loaded.err)
    path = schema(f"{head} or timer 9Hz() {body}", OTHER)
    done, log = recorder.run("-s", path, "--", "sh", "-c", "/bin/true; true")
    assert done.code == 0, done.err
    assert lacks in words(recorder.command("info", log).out)
    assert set(events(recorder, log)) == {"GOOD"}
