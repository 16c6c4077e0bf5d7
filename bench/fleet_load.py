# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Pairs of processes that send a byte to and fro over pipes: about ten events of the schema
`scheduler` each time.

usage: fleet_load.py TIMES PAIRS
"""

import os
import sys
from pathlib import Path


def pair(times: int) -> None:
    there, back = os.pipe(), os.pipe()
    if os.fork() == 0:
        for _ in range(times):
            os.read(there[0], 1)
            os.write(back[1], b"x")
        os._exit(0)
    for _ in range(times):
        os.write(there[1], b"x")
        os.read(back[0], 1)
    os.wait()


def main() -> None:
    times, pairs = map(int, sys.argv[1:])
    for number in range(pairs):
        if os.fork() == 0:
            Path("/proc/self/comm").write_text(f"pair{number}")
            pair(times)
            os._exit(0)
    for _ in range(pairs):
        os.wait()


if __name__ == "__main__":
    main()
