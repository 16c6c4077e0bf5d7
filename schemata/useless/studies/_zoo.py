# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Processes that do useless work of one kind each, a known number of times, and for each a twin
that does the same job properly. Prints a line of JSON for each: the rule that it breaks (or, of a
twin, that it could break), its pid, what it is about, and how often.

    _zoo.py FOLDER [many | fonts | only=RULE,...] [CRASHES] [KLOGGER]

`many`: the numbers of the study, which take longer. `fonts`: only D9, with more and more files,
and no twin. `only`: these rules, such as D4. The first line is the pid of the process that starts
the others. CRASHES is the program made from crashes.c, KLOGGER that which records this: without
them, some are left out. Nothing is changed outside of FOLDER: the affinity that is written to an
interrupt is the one that it has.
"""

import json
import os
import re
import resource
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

ROOM = Path(sys.argv[1])
MANY = "many" in sys.argv
ONLY = next((word[5:].lower().split(",") for word in sys.argv if word.startswith("only=")), None)
FONTS = [100, 600, 1100, 2100]
CRASHES = next((word for word in sys.argv[2:] if word.endswith("/crashes")), None)
KLOGGER = next((word for word in sys.argv[2:] if word.endswith("/klogger")), None)


class Skipped(Exception):
    """This machine does not have what an animal needs."""


def read(path):
    fd = os.open(path, os.O_RDONLY)
    data = os.read(fd, 1 << 20)
    os.close(fd)
    return data


def write(path, data, flags=os.O_WRONLY | os.O_CREAT | os.O_TRUNC):
    fd = os.open(path, flags, 0o600)
    os.write(fd, data)
    os.close(fd)


def absent(path, call=os.stat):
    try:
        call(path)
    except FileNotFoundError:
        return
    raise AssertionError(path)


def fill(room, many, size=8192):
    room.mkdir()
    for number in range(many):
        (room / f"entry{number}").write_bytes(b"x" * size)
    return room


def d1(room, planted):
    room.mkdir()
    (room / "config").write_bytes(b"config" * 100)
    for _ in range(53 if planted else 1):
        read(room / "config")
    return room / "config", 52


def d2(room, planted):
    """It lists the devices; no device has the name of a description."""
    room.mkdir()
    for number in range(29):
        (room / f"vendor-{number:x}q.fdi").write_bytes(b"x" * 300)
    os.listdir("/sys/class/net")
    for number in range(29 if planted else 3):
        read(room / f"vendor-{number:x}q.fdi")
    return room, 29


def d3(room, planted):
    fill(room, 61)
    names = os.listdir(room)
    for name in names if planted else names[:7]:
        read(room / name)
    return room, 61


def d4(room, planted):
    room.mkdir()
    if planted:
        for number in range(13):
            absent(room / f"bus{number}")
    else:
        os.listdir(room)
    return f"{room}/bus#", 13


def d5(room, planted):
    fill(room, 1)
    for _ in range(18 if planted else 1):
        os.stat(room / "entry0")
    return room / "entry0", 17


def d6(room, planted):
    fill(room, 1)
    fd = os.open(room / "entry0", os.O_RDONLY)
    os.read(fd, 10)
    for number in range(11):
        if planted:
            os.close(os.open(room / "entry0", os.O_RDONLY))
        else:
            os.pread(fd, 10, number)
    os.close(fd)
    return room / "entry0", 11


def d7(room, planted):
    room.mkdir()
    (room / "input").write_bytes(b"font" * 1000)
    for _ in range(5 if planted else 1):
        pid = os.fork()
        if not pid:
            data = read(room / "input")
            write(room / "cache", data[:100])
            os._exit(0)
        os.waitpid(pid, 0)
    return room / "cache", 4


def d8(room, planted):
    fill(room, 5)
    for number in range(31 if planted else 2):
        absent(
            room / f"cursor-{'abcdefghijklmnopqrstuvwxyzABCDE'[number]}", lambda p: os.open(p, 0)
        )
    return room, 31


def d9(room, planted):
    many = 6007 if MANY else 101
    fill(room, many, 5000)
    for number in range(many if planted else 7):
        os.close(os.open(room / f"entry{number}", os.O_RDONLY))
    return room, many


def d10(room, planted):
    room.mkdir()
    for number in range(12):
        write(room / "affinity", b"%d\n" % (1 if planted else number))
    return room / "affinity", 11


def interrupts():
    """How often each has occurred."""
    many = {}
    for line in Path("/proc/interrupts").read_text().splitlines()[1:]:
        name, *words = line.split()
        if name[:-1].isdigit():
            many[int(name[:-1])] = sum(int(word) for word in words[: os.cpu_count()])
    return many


def d11(room, planted):
    """It gives an interrupt the affinity that it has. That of the twin occurs."""
    room.mkdir()
    before = interrupts()
    for _ in range(50):
        (room / "synced").write_bytes(b"x")
        os.sync()
        now = interrupts()
        if planted or any(now[irq] > before[irq] for irq in before):
            break
        time.sleep(0.02)
    for irq in sorted(before):
        path = Path(f"/proc/irq/{irq}/smp_affinity")
        if now[irq] == 0 if planted else now[irq] > before[irq]:
            data = path.read_bytes()
            try:
                for _ in range(5 if planted else 1):
                    write(path, data, os.O_WRONLY)
            except OSError:
                continue
            # It is the same value, too.
            return f"interrupt {irq}", 5, [("D10", str(path), 4)]
    raise Skipped("no interrupt that can be moved")


def d12(room, planted):
    room.mkdir()
    (room / "counter").write_bytes(b"7")
    fd = None if planted else os.open(room / "counter", os.O_RDWR)
    for number in range(17):
        if planted:
            write(room / "counter", b"%d" % number)
        else:
            os.pwrite(fd, b"%d" % number, 0)
        time.sleep(0.03)
    return room / "counter", 17


def d13(room, planted):
    fill(room, 1)
    for _ in range(17 if planted else 1):
        os.stat(room / "entry0")
        time.sleep(0.05)
    return room / "entry0", 17


def cold(room, many, is_cold=True):
    """Files that are not in memory, made by another process."""
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    below = [m for m in mounts if str(room).startswith(m[0].rstrip("/") + "/")]
    if max(below, key=lambda m: len(m[0]))[1] in ("tmpfs", "ramfs"):
        raise Skipped("the folder is in memory, so that nothing is ever read from a device")
    pid = os.fork()
    if not pid:
        room.mkdir(parents=True)
        for number in range(many):
            with open(room / f"part{number}", "wb") as file:
                file.write(os.urandom(100_000))
                file.flush()
                os.fsync(file.fileno())
                if is_cold:
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        os._exit(0)
    os.waitpid(pid, 0)
    return [room / f"part{number}" for number in range(many)]


def comm():
    return Path("/proc/self/comm").read_text().strip()


def d14(room, planted):
    owner = "other-player" if planted else comm()
    for path in cold(room / "share" / owner, 7):
        read(path)
    return room / "share" / owner, 7


def d15(room, planted):
    room.mkdir()
    for size in range(16, 16 + 13 * 8, 8) if planted else (16,):
        absent(room / f"{size}x{size}" / "trash.png")
    return re.sub("[0-9]+", "#", str(room)) + "/#x#/trash.*", 13


def d16(room, planted):
    many = 503 if MANY else 101
    for _ in range(many if planted else 1):
        time.sleep(0.001 if planted else 0.2)
    return f"thread {os.getpid()}", many


def d17(room, planted):
    rang = 0

    def ring(*_):
        nonlocal rang
        rang += 1

    signal.signal(signal.SIGALRM, ring)
    if planted:
        signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
    many = 151 if MANY else 31
    until = many if planted else 0
    while rang < until:
        signal.pause()
    signal.setitimer(signal.ITIMER_REAL, 0)
    return "interval timer", many


def d18(room, planted):
    """A ring for packets, of which the kernel retires a block every 20 ms; by its clock."""
    if not planted:
        return "prb_retire_rx_blk_timer_expired", 0
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as ring:
        packet, version, rx_ring = 263, 10, 5
        ring.setsockopt(packet, version, 2)
        began = time.monotonic()
        # Blocks: bytes, number; frames: bytes, number; then milliseconds.
        request = struct.pack("7I", 4096, 4, 2048, 8, 20, 0, 0)
        ring.setsockopt(packet, rx_ring, request)
        time.sleep(0.7)
        return "prb_retire_rx_blk_timer_expired", round((time.monotonic() - began) / 0.02)


def d19(room, planted):
    for path in cold(room, 41, planted):
        read(path)
    return f"start of {comm()}", 41


def d20(room, planted):
    many = 101 if MANY else 23
    for _ in range(many if planted else 1):
        subprocess.run(["/bin/true"], check=True)
    return "command true", many


def mark(*words):
    if KLOGGER is None:
        raise Skipped("no klogger to set marks")
    command = [KLOGGER, "mark", "--recorder", RECORDER, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Skipped(f"klogger mark: {done.stderr.strip()}")


def d21(room, planted):
    fill(room, 1)
    mark("1", f"start {room.name}")
    for _ in range(23):
        os.close(os.open(room / "entry0", os.O_RDONLY))
    mark("2", f"stop {room.name}")
    for _ in range(211 if planted else 11):
        os.close(os.open(room / "entry0", os.O_RDONLY))
    mark("3", f"{room.name} is over")
    return f"stop {room.name}", 211


def crashes(kind, text, **more):
    if CRASHES is None:
        raise Skipped("no C compiler")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    environment = {**os.environ, "LIBC_FATAL_STDERR_": "1", **more}
    command = [CRASHES, kind, text]
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as child:
        return child.pid, child.wait()


def d22(room, planted):
    """The same program, once with memory that is not zero by chance."""
    pid, code = crashes("uninitialised", "", **({"MALLOC_PERTURB_": "165"} if planted else {}))
    assert code == (-signal.SIGSEGV if planted else 0)
    return "SIGSEGV", 1, [], pid


def d24(room, planted):
    for _ in range(3):
        _, code = crashes("overrun", "long enough for two" if planted else "short")
        assert code == (-signal.SIGABRT if planted else 0)
    return "overrun of a checked function", 3


def d26(room, planted):
    for number in range(5):
        for _ in range(4 if planted or not number else 0):
            read("/proc/self/stat")
            read("/proc/self/status")
        time.sleep(0.15)
    return "/proc/self", 40


def show(rule, planted):
    """In a process of its own."""
    name = rule.__name__
    line = {"rule": name.upper(), "pid": os.getpid(), "planted": planted}
    try:
        about, times, *more = rule(ROOM / f"{name}{'' if planted else 'twin'}", planted)
    except Skipped as why:
        print(json.dumps({**line, "skipped": str(why)}), flush=True)
        return
    line |= {"object": str(about), "times": times, "also": more[0] if more else []}
    if len(more) > 1:
        line["pid"] = more[1]
    print(json.dumps(line), flush=True)


RULES = [
    d1, d2, d3, d4, d5, d6, d7, d8, d9, d10, d11, d12, d13, d14, d15, d16, d17, d18, d19, d20, d21,
    d22, d24, d26,
]  # fmt: skip
RECORDER = str(os.getppid())


def fonts():
    """What a directory of fonts costs a program that looks into each."""
    for many in FONTS:
        room = ROOM / f"fonts{many}"
        fill(room, many, 5000)
        pid = os.fork()
        if not pid:
            for number in range(many):
                os.close(os.open(room / f"entry{number}", os.O_RDONLY))
            os._exit(0)
        os.waitpid(pid, 0)
        print(json.dumps({"pid": pid, "object": str(room), "times": many}), flush=True)


def main():
    print(json.dumps({"runner": os.getpid()}), flush=True)
    if "fonts" in sys.argv:
        fonts()
        return
    for rule in (rule for rule in RULES if ONLY is None or rule.__name__ in ONLY):
        for planted in (True, False):
            pid = os.fork()
            if not pid:
                show(rule, planted)
                os._exit(0)
            if os.waitpid(pid, 0)[1]:
                raise SystemExit(f"{rule.__name__} failed")


main()
