# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What libbpf does for the benchmarks: attach floor.bpf.c for as long as a block lasts, fetch a
program's code.
"""

import ctypes
import os
import shutil
import struct
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
# The best first.
CLANGS = (HERE.parent / "crates" / "toolchain" / "src" / "compilers.txt").read_text().split()
OLDEST = next(name for name in reversed(CLANGS) if "-" in name)
NO_CLANG = f"no clang to compile BPF programs: apt-get install {OLDEST}"


def find_clang() -> str | None:
    return next(filter(shutil.which, CLANGS), None)


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


def compiled(name: str, tracepoint: str, clang: str | None, out: Path, *more: str) -> None:
    """NAME.bpf.c of this folder, for a tracepoint."""
    compile_to(HERE / f"{name}.bpf.c", clang, out, *more, f'-DTRACEPOINT="{tracepoint}"')


def compile_to(source: Path, clang: str | None, out: Path, *more: str) -> None:
    if clang is None:
        raise RuntimeError(NO_CLANG)
    command = [
        clang,
        "-O2",
        "-g",
        "-target",
        "bpf",
        f"-I/usr/include/{os.uname().machine}-linux-gnu",
        *more,
    ]
    subprocess.run([*command, "-c", source, "-o", out], check=True)


@contextmanager
def floor(tracepoint: str, clock: bool, clang: str):
    """An empty program on the tracepoint, or one that reads the clock."""
    more = [f'-DTRACEPOINT="{tracepoint}"', *(["-DCLOCK"] if clock else [])]
    with attached_all(HERE / "floor.bpf.c", clang, *more):
        yield


@contextmanager
def attached_all(source: Path, clang: str | None, *more: str):
    """All programs of a source, where their sections say."""
    bpf = library()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "programs.o")
        compile_to(source, clang, file, *more)
        handle = bpf.bpf_object__open_file(str(file).encode(), None)
        if not handle or bpf.bpf_object__load(handle):
            raise OSError(ctypes.get_errno(), f"the programs of {source.name} were not loaded")
    links, program = [], bpf.bpf_object__next_program(handle, None)
    try:
        while program:
            link = bpf.bpf_program__attach(program)
            if not link:
                raise OSError(ctypes.get_errno(), f"{source.name} was not attached")
            links.append(link)
            program = bpf.bpf_object__next_program(handle, program)
        yield
    finally:
        for link in links:
            bpf.bpf_link__destroy(link)
        bpf.bpf_object__close(handle)


def machine_code(program: int) -> bytes:
    """What the kernel's compiler made of the program with this id."""
    bpf = library()
    fd = bpf.bpf_prog_get_fd_by_id(program)
    if fd < 0:
        raise OSError(ctypes.get_errno(), f"there is no program {program}")
    code = ctypes.create_string_buffer(1 << 20)
    # The head of struct bpf_prog_info: type, id, tag[8], jited_prog_len, xlated_prog_len,
    # jited_prog_insns.
    info = ctypes.create_string_buffer(
        struct.pack("=16xIIQ", len(code), 0, ctypes.addressof(code)), 256
    )
    size = ctypes.c_uint(len(info))
    failed = bpf.bpf_obj_get_info_by_fd(fd, info, ctypes.byref(size))
    os.close(fd)
    if failed:
        raise OSError(ctypes.get_errno(), f"program {program} was not described")
    return code.raw[: struct.unpack_from("=I", info, 16)[0]]
