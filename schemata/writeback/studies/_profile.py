# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""python3 _profile.py PROFILE FOLDER SECONDS: a server that reads files and writes a burst now and
then, or files that are made and deleted without a pause. Prints when it wrote, as JSON: times of
the monotonic clock in ns.
"""

import ctypes
import json
import os
import sys
import time
from pathlib import Path

FILES = 40
SIZE = 16384
# All times are a tenth of the source's: a burst of 20 ms each 2 s.
EACH = 2.0
BURST = 0.02


def sync(folder: Path) -> None:
    here = os.open(folder, os.O_RDONLY)
    ctypes.CDLL(None).syncfs(here)
    os.close(here)


def server(folder: Path, until: float) -> list[list[int]]:
    """A burst, a sync, and nothing but reads for the rest of the period."""
    bursts = []
    while (began := time.monotonic()) < until:
        first = time.monotonic_ns()
        number = 0
        while time.monotonic() < began + BURST:
            (folder / f"burst{number % FILES}").write_bytes(b"x" * SIZE)
            number += 1
            last = time.monotonic_ns()
        sync(folder)
        bursts.append([first, last])
        while time.monotonic() < min(began + EACH, until):
            for reads in range(FILES):
                (folder / f"read{reads}").read_bytes()
            time.sleep(0.02)
    return bursts


def postmark(folder: Path, until: float) -> list[list[int]]:
    first, number = time.monotonic_ns(), 0
    while time.monotonic() < until:
        (folder / f"mail{number % 500}").write_bytes(b"x" * SIZE)
        if number >= FILES:
            (folder / f"mail{(number - FILES) % 500}").unlink(missing_ok=True)
        number += 1
        time.sleep(0.001)
    return [[first, time.monotonic_ns()]]


def main() -> None:
    profile, folder = sys.argv[1], Path(sys.argv[2])
    for number in range(FILES):
        (folder / f"read{number}").write_bytes(b"x" * SIZE)
    sync(folder)
    until = time.monotonic() + float(sys.argv[3])
    wrote = (server if profile == "server" else postmark)(folder, until)
    print(json.dumps({"wrote": wrote}))


main()
