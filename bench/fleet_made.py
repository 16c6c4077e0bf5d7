# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A dataset of many recordings, made of one: each has an id, a host, a kernel, labels and a time of
its own, and the rows of the first. Their files are hard links, so that a thousand million events
fit on a disk; the columns `host` and `log` in them are those of the first, which reports do not
read.
"""

import copy
import json
import os
import uuid
from pathlib import Path

HOSTS, KERNELS, BUILDS = 100, 4, 10
SECOND = 10**9


def multiplied(folder: Path, log: str, first: int, last: int) -> None:
    """Adds the copies `first` to `last` of a recording to its dataset."""
    base = json.loads((folder / "recordings" / f"{log}.json").read_text())
    meta = json.loads((folder / base["meta"]).read_text())
    for number in range(first, last):
        one(folder, base, meta, number)


def one(folder: Path, base: dict, meta: dict, number: int) -> None:
    log = str(uuid.uuid5(uuid.UUID(base["log"]), str(number)))
    host, kernel = f"host{number % HOSTS:03}", f"6.{number % KERNELS}.0"
    said = copy.deepcopy(base)
    said |= {
        "log": log, "host": host, "kernel": kernel, "labels": {"build": str(number % BUILDS)},
        "from_wall_ns": base["from_wall_ns"] + number * SECOND,
        "to_wall_ns": base["to_wall_ns"] + number * SECOND,
        "checksum": uuid.uuid5(uuid.UUID(log), "content").hex,
    }  # fmt: skip
    of_own(said["opening"], number)

    def place(path: str) -> str:
        own = path.replace(f"/recording={base['log']}/", f"/recording={log}/")
        return own.replace(f"/host={base['host']}/", f"/host={host}/")

    for kind in ("events", "tables"):
        for part in said[kind].values():
            if part["path"]:
                old, part["path"] = part["path"], place(part["path"])
                (folder / part["path"]).parent.mkdir(parents=True, exist_ok=True)
                os.link(folder / old, folder / part["path"])
    said["meta"] = place(base["meta"])
    (folder / said["meta"]).parent.mkdir(parents=True, exist_ok=True)
    described = json.loads(json.dumps(meta))
    described["preamble"]["host"] |= {"name": host, "kernel": kernel}
    described["preamble"]["clock"]["start_realtime_ns"] = said["from_wall_ns"]
    described["preamble"]["recorder"]["tids"] = [10**6 + number]
    for cost in described["preamble"]["costs"]["events"]:
        cost["cost"]["ns"] += number % 7
    (folder / said["meta"]).write_text(json.dumps(described))
    (folder / "recordings" / f"{log}.json").write_text(json.dumps(said))


def of_own(opening: dict, number: int) -> None:
    """What differs between recordings, so that it is not found to be that of the one before."""
    opening["to_ns"] += number
    opening["threads"].append([2 * 10**6 + number, None, "other", 1])
    opening["renamed"].append([2 * 10**6 + number, 0, "other", number])
