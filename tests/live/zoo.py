# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Processes that do useless work of one kind each, a known number of times, and for each a twin
that does the same job properly. Prints a line of JSON for each: the rule that it breaks (or, of a
twin, that it could break), its pid, what it is about, and how often.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOM = Path(sys.argv[1])


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
    fill(room, 101)
    for number in range(101 if planted else 7):
        os.close(os.open(room / f"entry{number}", os.O_RDONLY))
    return room, 101


def d10(room, planted):
    room.mkdir()
    for number in range(12):
        write(room / "affinity", b"%d\n" % (1 if planted else number))
    return room / "affinity", 11


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
    for _ in range(17):
        if planted:
            os.stat(room / "entry0")
        time.sleep(0.05)
    return room / "entry0", 17


def d16(room, planted):
    for _ in range(101 if planted else 1):
        time.sleep(0.002 if planted else 0.2)
    return f"thread {os.getpid()}", 101


def d17(room, planted):
    rang = 0

    def ring(*_):
        nonlocal rang
        rang += 1

    signal.signal(signal.SIGALRM, ring)
    if planted:
        signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
    until = 31 if planted else 0
    while rang < until:
        signal.pause()
    signal.setitimer(signal.ITIMER_REAL, 0)
    return "interval timer", 31


def d20(room, planted):
    for _ in range(23 if planted else 1):
        subprocess.run(["/bin/true"], check=True)
    return "command true", 23


def d26(room, planted):
    for number in range(5):
        for _ in range(4 if planted or not number else 0):
            read("/proc/self/stat")
            read("/proc/self/status")
        time.sleep(0.15)
    return "/proc/self", 40


def main():
    rules = [d1, d3, d4, d5, d6, d7, d8, d9, d10, d12, d13, d16, d17, d20, d26]
    for rule in rules:
        for planted in (True, False):
            sys.stdout.flush()
            pid = os.fork()
            if not pid:
                room = ROOM / f"{rule.__name__}{'' if planted else 'twin'}"
                about, times = rule(room, planted)
                line = {"rule": rule.__name__.upper(), "pid": os.getpid(), "planted": planted}
                print(json.dumps({**line, "object": str(about), "times": times}), flush=True)
                os._exit(0)
            if os.waitpid(pid, 0)[1]:
                raise SystemExit(f"{rule.__name__} failed")


main()
