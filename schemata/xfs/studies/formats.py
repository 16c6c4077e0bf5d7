# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Directories and attributes of XFS change their format as they grow and shrink: at which size, at
which cost, and do they go back and forth?
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import median

from klogger.analysis import Column, Picture
from klogger.executor import Result
from klogger_lab.disk import loop_disk
from klogger_lab.study.model import Answer, Arm, Check, Plan, Run, Study, result

LOAD = Path(__file__).with_name("_directories.py")
FORMS = ("short", "block", "leaf", "node")
MEGABYTES = 300
# Names in the largest directory, by the seconds of the study; the source's workload has 100,000.
NAMES_BY_SECOND = 499
MOST_NAMES = 19_997
LEAST_NAMES = 2_503
# An inode thrashes if that many of its changes undo one of the second before.
THRASH = 3
UP = list(FORMS)
BOTH_WAYS = UP + UP[-2::-1]


def arms(plan: Plan) -> list[Arm]:
    most = int(min(max(plan.seconds * NAMES_BY_SECOND, LEAST_NAMES), MOST_NAMES))
    found = []
    for name, what in (
        ("grow and shrink", "grow"), ("hover", "hover"), ("stay", "still"),
        ("attributes", "attributes"),
    ):  # fmt: skip
        place = plan.folder / f"formats-{what}"

        @contextmanager
        def disk(place: Path = place) -> Iterator[int]:
            with loop_disk(place, MEGABYTES, mkfs=["mkfs.xfs", "-q"]) as made:
                yield made.number

        words: list[str | Path] = [
            sys.executable, LOAD, what, place / "mounted", str(most)
        ]  # fmt: skip
        record = ["--set", "maps=false", "--set", "transactions=false", "--set", "locks=false"]
        share = plan.seconds * (0.7 if what == "grow" else 0.1)
        found.append(Arm(name, words, share, {"most": most}, record=record, around=disk))
    return found


class Seen:
    """An arm: what its load said, and the changes of format that were logged, by inode."""

    def __init__(self, run: Run):
        self.name = run.arm.name
        self.told = {one["inode"]: one for one in json.loads(run.output)}
        self.changes: dict[int, list[tuple[int, int, int, int]]] = defaultdict(list)
        assert run.log is not None
        # The k-th operation of a directory by the load is the k-th that was logged.
        for inode, time, before, after, op in run.log.rows(f"""
            SELECT f.inode, f.time, f.before, f.format, (
                SELECT count(*) FROM DIRECTORY AS d
                WHERE d.inode = f.inode AND d.device = f.device AND d.time <= f.time)
            FROM FORMAT AS f WHERE f.device = {run.oracle} ORDER BY f.time
        """):
            self.changes[inode].append((time, before, after, op))

    def forms(self, inode: int) -> list[str]:
        return ["short", *(FORMS[after] for _, _, after, _ in self.changes[inode])]

    def thrash(self, inode: int) -> int:
        steps = self.changes[inode]
        return sum(b[1:3] == (a[2], a[1]) and b[0] - a[0] <= 10**9 for a, b in pairwise(steps))


def analyse(_: Plan, runs: list[Run]) -> Answer:
    seen = {run.arm.name: Seen(run) for run in runs if run.log is not None}
    answer = Answer()
    timed = [one for one in seen.values() if one.name != "attributes"]
    costs = costs_of(timed)
    answer.results = [
        thresholds_table(seen["grow and shrink"]),
        costs_table(costs),
        hover_table(seen["hover"], seen["stay"]),
    ]
    answer.sentences = sentences(seen, costs)
    answer.checks = checks(seen)
    answer.cannot = list(CANNOT)
    return answer


def names_at(steps: list[tuple[int, int, int, int]], grown: int) -> list[tuple[str, int]]:
    """Names in the directory after the operation in which it changed, which grew to that many."""
    return [
        (f"{FORMS[before]} to {FORMS[after]}", op if op <= grown else 2 * grown - op)
        for _, before, after, op in steps
    ]


def thresholds_table(grow: Seen) -> Result:
    sizes: dict[str, list[int]] = defaultdict(list)
    for inode, one in grow.told.items():
        for what, names in names_at(grow.changes[inode], len(one["took"]) // 2):
            sizes[what].append(names)
    order = [f"{a} to {b}" for a, b in pairwise(BOTH_WAYS)]
    rows = [[w, len(sizes[w]), min(sizes[w]), max(sizes[w])] for w in order if sizes[w]]
    columns = [
        Column("change", "", False, "change of format"),
        Column("times", "count", False, "directories that made it"),
        Column("least", "count", False, "names in the directory then, at least"),
        Column("names", "count", True, "names in the directory then, at most"),
    ]
    return result(
        "thresholds", "Sizes at the changes", "At how many names does a directory change?", columns,
        rows, Picture("bars", {"x": "names", "y": "change"}),
        notes=["Names have 39 bytes, blocks 4 KiB, inodes 512 bytes."],
    )  # fmt: skip


def costs_of(seen: list[Seen]) -> dict[str, list[int]]:
    """What operations took by the load's own clock: those that changed a format, and others."""
    found: dict[str, list[int]] = defaultdict(list)
    for arm in seen:
        for inode, one in arm.told.items():
            at = {op - 1: (before, after) for _, before, after, op in arm.changes[inode]}
            for n, took in enumerate(one["took"]):
                change = at.get(n)
                what = f"{FORMS[change[0]]} to {FORMS[change[1]]}" if change else "none"
                found[what].append(took)
    return found


def costs_table(costs: dict[str, list[int]]) -> Result:
    usual = median(costs["none"])
    rows: list[list[object]] = [
        [what, len(took), int(median(took)), max(took), round(median(took) / usual, 2)]
        for what, took in sorted(costs.items(), key=lambda pair: -median(pair[1]))
    ]
    columns = [
        Column("change", "", False, "change in the operation that adds or removes a name"),
        Column("operations", "count", False, "so many"),
        Column("p50", "ns", True, "half of them took no longer, by the load's own clock"),
        Column("max", "ns", False, "the longest"),
        Column("ratio", "", False, "the median, by that of operations without a change"),
    ]
    return result(
        "costs", "Cost of a change", "How long does an operation take that changes the format?",
        columns, rows, Picture("bars", {"x": "p50", "y": "change"}),
    )  # fmt: skip


def hover_table(hover: Seen, still: Seen) -> Result:
    rows: list[list[object]] = []
    for arm in (hover, still):
        for inode, one in arm.told.items():
            kinds = Counter(frozenset(step[1:3]) for step in arm.changes[inode])
            pair = max(kinds, key=lambda k: kinds[k]) if kinds else frozenset()
            where = " and ".join(FORMS[n] for n in sorted(pair))
            where = "stays within block" if arm is still else where
            changes, thrash = len(arm.changes[inode]), arm.thrash(inode)
            text = "yes" if thrash >= THRASH else "no"
            middle = int(median(one["took"]))
            rows.append([where, len(one["took"]), changes, thrash, text, middle])
    columns = [
        Column("between", "", False, "formats between which it changed most often"),
        Column("operations", "count", False, "names that were added or removed"),
        Column("changes", "count", False, "changes of format"),
        Column("undone", "count", True, "changes that undid one of the second before"),
        Column("thrashes", "", False, f"at least {THRASH} of those"),
        Column("p50", "ns", False, "half of the operations took no longer"),
    ]
    return result(
        "hover", "At a threshold", "Does a directory that hovers at a threshold go back and forth?",
        columns, rows, Picture("bars", {"x": "undone", "y": "between"}),
    )  # fmt: skip


def sentences(seen: dict[str, Seen], costs: dict[str, list[int]]) -> list[str]:
    hover = seen["hover"]
    thrashing = sum(hover.thrash(inode) >= THRASH for inode in hover.told)
    changes = sum(len(hover.changes[i]) for i in hover.told)
    operations = sum(len(one["took"]) for one in hover.told.values())
    middle = {
        name: median(t for one in seen[name].told.values() for t in one["took"])
        for name in ("hover", "stay")
    }
    changed = [t for what, took in costs.items() if what != "none" for t in took]
    return [
        f"{thrashing} of {len(hover.told)} directories that hovered at a threshold thrashed:"
        f" {changes:,} changes of format in {operations:,} operations.",
        f"An operation that changes the format takes {median(changed) / median(costs['none']):.1f}"
        f" times as long as others; hovering takes {middle['hover'] / middle['stay']:.2f} of the"
        " time of the same operations in the middle of a format. The source saw its fully adaptable"
        " file system 0 to 15 % slower than ext2.",
    ]


def checks(seen: dict[str, Seen]) -> list[Check]:
    grow = seen["grow and shrink"]
    largest = max(grow.told, key=lambda inode: len(grow.told[inode]["took"]))
    forms = grow.forms(largest)
    balance = [
        sum(b > a for _, a, b, _ in grow.changes[i]) - sum(b < a for _, a, b, _ in grow.changes[i])
        for i in grow.told
    ]
    size = logged = 0
    for arm in seen.values():
        if arm.name != "attributes":
            size += sum(one["changes"] for one in arm.told.values())
            logged += sum(0 in step[1:3] for inode in arm.told for step in arm.changes[inode])
    ended = [seen["attributes"].forms(inode) for inode in seen["attributes"].told]
    return [
        Check("the largest directory has all formats, both ways", forms == BOTH_WAYS,
              " ".join(forms)),
        Check("as many changes up as down", not any(balance), f"differences {balance}"),
        Check("changes from and to the inode are those of st_size", size == logged > 0,
              f"{logged:,} logged, {size:,} by the size of directories"),
        Check("staying in one format changes none",
              all(len(seen["stay"].changes[i]) == 1 for i in seen["stay"].told),
              "one change, when it grew"),
        Check("attributes grow out of the inode and come back",
              all(one[0] == one[-1] == "short" and len(one) >= 3 for one in ended),
              "; ".join(" ".join(one) for one in ended)),
    ]  # fmt: skip


CANNOT = (
    "The source's workload of 100,000 names: directories here are as large as the time allows.",
    "Files that are converted on the fly, replicated or striped, as in KFS: XFS does not do it.",
    "The what-if model of the best format for each file, and other file systems.",
    "Attributes that go from a node to a leaf: XFS has no event for it.",
)

STUDY = Study(
    name="formats",
    title="Formats that follow the size",
    question="When do directories and attributes of XFS change their format, and at which cost?",
    paper=(
        "S. Bhattacharya et al., Towards a Highly Adaptable Filesystem Framework for Linux, Linux"
        " Symposium 2006, volume 1"
    ),
    found=(
        "A survey of what could adapt, and a file system (KFS) in which each file has its own"
        " representation: about as fast as ext2, and up to 15 % slower on some loads."
    ),
    schemata=("xfs",),
    arms=arms,
    analyse=analyse,
    seconds=30,
    least_seconds=8,
)
