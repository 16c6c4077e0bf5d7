# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Attaches floor.bpf.c, by libbpf, for as long as a block lasts."""

import ctypes
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path

SOURCE = Path(__file__).with_name("floor.bpf.c")


def library() -> ctypes.CDLL:
    bpf = ctypes.CDLL("libbpf.so.1", use_errno=True)
    for name, arguments in {
        "bpf_object__open_file": [ctypes.c_char_p, ctypes.c_void_p],
        "bpf_object__next_program": [ctypes.c_void_p, ctypes.c_void_p],
        "bpf_program__attach": [ctypes.c_void_p],
    }.items():
        function = getattr(bpf, name)
        function.restype, function.argtypes = ctypes.c_void_p, arguments
    for name in ("bpf_object__load", "bpf_object__close", "bpf_link__destroy"):
        getattr(bpf, name).argtypes = [ctypes.c_void_p]
    return bpf


@contextmanager
def floor(tracepoint: str, clock: bool, clang: str):
    """An empty program on the tracepoint, or one that reads the clock."""
    bpf = library()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "floor.o")
        command = [clang, "-O2", "-g", "-target", "bpf", "-I/usr/include/x86_64-linux-gnu"]
        command += [f'-DTRACEPOINT="{tracepoint}"', *(["-DCLOCK"] if clock else [])]
        subprocess.run([*command, "-c", SOURCE, "-o", file], check=True)
        handle = bpf.bpf_object__open_file(str(file).encode(), None)
        if not handle or bpf.bpf_object__load(handle):
            raise OSError(ctypes.get_errno(), "the floor's program was not loaded")
    link = bpf.bpf_program__attach(bpf.bpf_object__next_program(handle, None))
    if not link:
        raise OSError(ctypes.get_errno(), "the floor's program was not attached")
    try:
        yield
    finally:
        bpf.bpf_link__destroy(link)
        bpf.bpf_object__close(handle)
