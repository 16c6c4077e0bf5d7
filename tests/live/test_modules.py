# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Modules that a schema declares, on a kernel that cannot load any: refused, or left out. What
modules have is tested in tests/guest/test_functions.py.
"""

from pathlib import Path

import pytest

SCHEMA = """schema m
module MODULE
event EXIT { int tid as thread }
probe tracepoint sched_process_exit(struct task_struct *p) { klogger(EXIT, p->pid); }
"""
NEVER = "this kernel has none of this name, and cannot load modules"


@pytest.fixture
def schema(tmp_path):
    if Path("/proc/modules").exists():
        pytest.skip("this kernel can load modules")

    def write(module):
        path = tmp_path / "m.klogger"
        path.write_text(SCHEMA.replace("MODULE", module))
        return path

    return write


def test_a_module_that_is_missing(recorder, schema, clean_kernel):
    path = schema("no_such-module")
    done, _ = recorder.run("-s", path, "--", "true")
    assert done.code == 2
    assert done.err == (
        f"klogger: {path}:2: cannot load the kernel module 'no_such_module': {NEVER}\n"
        "  help: record on a kernel that has it: 'klogger guest --help'; 'module no_such_module "
        "optional' records without it\n"
    )
    checked = recorder.command("check", path)
    assert checked.code == 0
    assert f"the kernel module 'no_such_module' is missing: {NEVER}" in " ".join(
        checked.err.replace("│", " ").split()
    )


def test_an_optional_one(recorder, schema, clean_kernel):
    done, _ = recorder.run("-s", schema("no_such_module optional"), "--", "true")
    assert done.code == 0
    assert f"klogger: without the kernel module 'no_such_module': {NEVER}\n" in done.err


@pytest.mark.full("others of this file are in the gate")
def test_a_part_of_the_kernel(recorder, schema, clean_kernel):
    """One with parameters is in /sys/module, others have functions."""
    for module in ("loop", "ext4"):
        done, _ = recorder.run("-s", schema(module), "--", "true")
        assert (done.code, "module" in done.err) == (0, False)
