# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Numbers of devices are taken apart in one place."""

from __future__ import annotations

import ast
import os
from pathlib import Path

from klogger import devices

HERE = Path(__file__).resolve().parents[1]
# MiB have as many bits; so has what is behind the last symbol in `decodings`.
OF_OTHERS = {"klogger/sources.py", "klogger/compare/stats.py", "klogger/why/follow.py",
             "klogger_lab/watch/stream.py", "klogger_lab/bench/rate.py",
             "klogger/cli/verify.py"}  # fmt: skip


def test_a_number_is_the_kernels() -> None:
    assert devices.number(8, 1) == 8 << 20 | 1
    for major, minor in ((0, 0), (8, 1), (7, 3), (259, 70000), (4095, 2**20 - 1)):
        number = devices.number(major, minor)
        assert devices.split(number) == (major, minor)
        assert devices.text(number) == f"{major}:{minor}"
    here = os.stat("/").st_dev
    assert devices.text(devices.number(os.major(here), os.minor(here))) == (
        f"{os.major(here)}:{os.minor(here)}"
    )


def test_a_disk_has_its_name_or_its_number() -> None:
    preamble = {"host": {"disks": [["8:1", "sda1"], ["259:0", "nvme0n1"]]}}
    names = devices.disk_names(preamble)
    assert names == {8 << 20 | 1: "sda1", 259 << 20: "nvme0n1"}
    assert devices.disk(names, 8 << 20 | 1) == "sda1"
    assert devices.disk(names, 8 << 20 | 2) == "8:2"


def test_what_a_preamble_has_instead_of_disks_is_no_name() -> None:
    for host in ({}, {"disks": None}, {"disks": {"8:1": "a"}}, [], None, "disks"):
        assert devices.disk_names({"host": host}) == {}
    odd = [["8:1"], "8:1", [8, 1], ["8:1", "a\x1b[1m"], ["8:", "c"], ["8:1", ""], ["8:1", "a", "b"]]
    assert devices.disk_names({"host": {"disks": odd}}) == {}
    many = [[f"8:{minor}", f"d{minor}"] for minor in range(devices.DISKS_MAX + 5)]
    assert len(devices.disk_names({"host": {"disks": many}})) == devices.DISKS_MAX


def test_no_other_module_shifts_by_the_bits_of_a_minor_number() -> None:
    found = set()
    for file in (*HERE.glob("klogger/**/*.py"), *HERE.glob("klogger_lab/**/*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            is_shift = isinstance(node, ast.BinOp) and isinstance(node.op, ast.LShift | ast.RShift)
            by = node.right if is_shift and isinstance(node, ast.BinOp) else None
            # Constants of both are megabytes.
            if isinstance(node, ast.BinOp) and isinstance(node.left, ast.Constant):
                by = None
            if isinstance(by, ast.Constant) and by.value == devices.MINOR_BITS:
                found.add(str(file.relative_to(HERE)))
            if isinstance(node, ast.Name) and node.id == "MINOR_BITS":
                found.add(str(file.relative_to(HERE)))
    assert found - OF_OTHERS == {"klogger/devices.py"}
