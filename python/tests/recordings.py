# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Small logs of their own, and datasets with some of them."""

from __future__ import annotations

import json
import shutil
import uuid
from pathlib import Path

import duckdb
import support

from klogger import dataset
from klogger.folder import RECORDINGS


def log_of(folder: Path, number: int = 0, host: str = "example", **given: object) -> Path:
    """A small log; each number is another recording."""
    con = duckdb.connect()
    support.create_tables(con, support.events_of("scheduler"))
    ran = [(10_000 + 80_000 * k, 20_000 + 1000 * k, 10 + k % 2) for k in range(20)]
    begun = [(start, 0, 2 * k, pid, 120, pid) for k, (start, _, pid) in enumerate(ran)]
    ended = [
        (start + ns, 0, 2 * k + 1, pid, 120, 1, 0, 0) for k, (start, ns, pid) in enumerate(ran)
    ]
    support.insert(con, "SCHEDIN", begun)
    support.insert(con, "SCHEDOUT", ended)
    meta = {
        "clock": {"start_realtime_ns": 1_700_000_000 * 10**9 + number, "uncertainty_ns": 30},
        "host": {"name": host, "kernel": "6.1.0", "cpus": [0]},
        **given,
    }
    return support.write_log(
        con, folder / f"{number}.klog-parquet", processes=[(10, "hog", 0, None)], end=3_400_000,
        meta=meta,
    )  # fmt: skip


class Datasets:
    """Each is made once, for to add a log to a dataset takes longer than most tests of one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def copy(self, to: Path, hosts: tuple[str, ...], *, built: bool = False) -> dataset.Dataset:
        """With a recording of each host, and the logs 0, 1, ... beside it. `built`: each has the
        label build with its number.
        """
        folder = self.folder / "-".join([*hosts, str(built)])
        if not folder.is_dir():
            into = dataset.open(folder / "ds", create=True)
            for number, host in enumerate(hosts):
                labels = {"build": str(number)} if built else {}
                into.add(log_of(folder, number, host), labels)
        shutil.copytree(folder, to, dirs_exist_ok=True)
        return dataset.open(to / "ds")


def multiplied(into: dataset.Dataset, entry: dataset.Entry, count: int) -> None:
    """Adds as many recordings with the files of this one, each with an id and a host of its own."""
    said = json.loads(into.store.read(entry.name))
    for number in range(count):
        log = str(uuid.uuid5(uuid.UUID(entry.log), str(number)))
        own = said | {"log": log, "host": f"copy{number}", "checksum": log}
        into.store.write(f"{RECORDINGS}/{log}.json", json.dumps(own).encode())
