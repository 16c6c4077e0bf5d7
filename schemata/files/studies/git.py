# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Git's three claims of 2006: what it need not look at, need not open and need not read."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from klogger.analysis import Column, Picture
from klogger.executor import Result, Rows
from klogger.failure import Failure
from klogger_lab.study.model import Answer, Arm, Check, Plan, Run, Study, result

from . import _repository as repository
from ._repository import BOTH, CHANGED, MAILS, RACY, Repository

SEED = 20060718
SIZES = (1000, 2000, 5000, 10_000, 19_000, 60_000)
# Of an arm, on a machine that does little else: to make the repository, and to run the commands.
SECONDS, SECONDS_FOR_A_FILE = 5.0, 0.002
STATS = ("lstat", "stat", "newfstatat", "statx")
OPENS = ("open", "openat", "openat2")
RENAMES = ("rename", "renameat", "renameat2")
OBJECT = re.compile(r"(?:^|/)objects/([0-9a-f]{2})/([0-9a-f]{38})$")
DIRECTORY = 0x4000
# The source's figures of the kernel's tree, and of its merges.
PAPER_FILES, PAPER_MERGE = 19_000, (185, 10)

# The commands in their order. Those with a name are counted; `later` makes the index younger than
# all files, so that no entry is racy.
COMMANDS = [
    {"name": "status", "words": ["status", "--porcelain"]},
    {"racy": []},
    {"name": "status, racy files", "words": ["status", "--porcelain"]},
    {"name": "diff of two trees", "words": ["diff", "--name-only", "base", "changed"]},
    {"name": "merge -s ort", "words": ["merge", "-q", "-s", "ort", "-m", "m", "theirs"]},
    {"name": "checkout of the tip before", "words": ["checkout", "-q", "ours^1"]},
    {"later": True},
    {"name": "merge -s resolve", "words": ["merge", "-q", "-s", "resolve", "-m", "m", "theirs"]},
    {"edit": ""},
    {"name": "commit -a of a file", "words": ["commit", "-q", "-am", "x"]},
    {"name": f"am of {MAILS} mails", "words": ["am", "-q"], "where": ".clone"},
]


@dataclass
class Prepared:
    """An arm's repository, and what others count there."""

    made: Repository
    listed: int = 0
    strace: int | None = None
    types: dict[str, str] = field(default_factory=dict)
    # Blobs of paths that only our side has changed.
    own: set[str] = field(default_factory=set)


def plan_of(made: Repository) -> list[dict]:
    steps = []
    for step in COMMANDS:
        one = dict(step)
        if "racy" in one:
            one["racy"] = made.racy
        if "edit" in one:
            one["edit"] = made.ours[0]
        if one.get("where"):
            one["where"] = made.folder.name + ".clone"
            mails = sorted((made.folder.parent / "mails").iterdir())
            one["words"] = [*one["words"], *map(str, mails)]
        steps.append(one)
    return steps


@contextlib.contextmanager
def prepared(folder: Path, files: int) -> Iterator[Prepared]:
    """Not recorded: the repository, and a run of status under strace."""
    top = folder / f"git{files}"
    found = Prepared(repository.make(top / "tree", files, SEED))
    (top / "plan.json").write_text(json.dumps(plan_of(found.made)))
    found.listed = len(repository.git(top / "tree", "ls-files").splitlines())
    found.own = own_blobs(found.made)
    found.strace = by_strace(top, files)
    try:
        yield found
        found.types = repository.types_of(top / "tree", top / "tree.clone")
    finally:
        shutil.rmtree(top, ignore_errors=True)


def own_blobs(made: Repository) -> set[str]:
    said = [
        repository.git(made.folder, "ls-tree", "-r", commit, "--", *made.ours)
        for commit in ("base", "ours")
    ]
    return {line.split()[2] for text in said for line in text.splitlines()}


def by_strace(top: Path, files: int) -> int | None:
    """How often `git status` calls stat with the path of a tracked file; None without strace."""
    if not shutil.which("strace"):
        return None
    said = top / "strace"
    words = ["strace", "-f", "-s", "200", "-e", "trace=%%stat", "-o", said, "git"]
    subprocess.run(
        [*words, *COMMANDS[0]["words"]], cwd=top / "tree", capture_output=True, check=False,
        env={**os.environ, **repository.ENVIRONMENT},
    )  # fmt: skip
    paths = tracked(files)
    return sum(path in paths for path in re.findall(r'"([^"]*)"', said.read_text()))


def seconds_of(files: int) -> float:
    return SECONDS + SECONDS_FOR_A_FILE * files


def arms(plan: Plan) -> list[Arm]:
    if not shutil.which("git"):
        raise Failure("there is no git here", help="apt-get install git")
    left, chosen = plan.seconds, []
    for files in SIZES:
        left -= seconds_of(files)
        if left < 0 and len(chosen) >= 2:
            break
        chosen.append(files)
    script = Path(repository.__file__).resolve()
    made = []
    for files in chosen:
        top = plan.folder / f"git{files}"
        command = [sys.executable, script, top / "tree", top / "plan.json"]
        around = partial(prepared, plan.folder, files)
        name = f"{files} files"
        made.append(Arm(name, command, seconds_of(files), {"files": files}, around=around))
    return made


@dataclass
class Did:
    """What one command did, with its children."""

    name: str
    files: int
    counted: dict[str, int]
    stats: Counter = field(default_factory=Counter)
    opened: Counter = field(default_factory=Counter)
    absent: int = 0
    renamed: Counter = field(default_factory=Counter)
    objects: set[str] = field(default_factory=set)
    execs: int = 0
    calls: int = 0

    def read(self, types: dict[str, str], kind: str) -> int:
        return sum(types.get(name) == kind for name in self.objects)


LOOKS = r"""
SELECT coalesce(t.tgid, l.tid) AS tgid, regexp_replace(place(l.call), '^.* ', '') AS call,
    n.path, l.result, l.mode
FROM LOOK AS l
JOIN (SELECT file, any_value(path) AS path FROM NAMED GROUP BY file) AS n USING (file)
LEFT JOIN klogger.thread AS t ON t.pid = l.tid
"""


def commands_of(run: Run) -> list[Did]:
    """The commands of an arm, from its log and from what it printed."""
    assert run.log is not None
    files = int(run.arm.parameters["files"])
    said = [json.loads(line) for line in run.output.splitlines()]
    found = {one["pid"]: Did(one["name"], files, one["counted"]) for one in said if one["name"]}
    root = {pid: did for pid, did in found.items()}
    # A child belongs to the command of its parent; parents come first.
    for parent, child in run.log.rows(
        "SELECT coalesce(t.tgid, f.parent), f.tgid FROM PROCESS_FORK AS f"
        " LEFT JOIN klogger.thread AS t ON t.pid = f.parent ORDER BY f.time"
    ):
        if parent in root and child not in root:
            root[child] = root[parent]
    for tgid, call, path, outcome, mode in run.log.rows(LOOKS):
        if did := root.get(tgid):
            add(did, call, path, outcome, mode)
    return list(found.values())


def add(did: Did, call: str, path: str, outcome: int, mode: int) -> None:
    did.calls += 1
    did.execs += call in ("execve", "execveat") and outcome == 0
    if call in RENAMES and outcome == 0:
        did.renamed[path.rsplit("/", 1)[-1]] += 1
    if call in STATS and path:
        did.stats[path] += 1
    if call in OPENS:
        if outcome < 0:
            did.absent += 1
        elif name := OBJECT.search(path):
            did.objects.add(name[1] + name[2])
        elif not mode & DIRECTORY and ".git/" not in path and not path.startswith("/"):
            did.opened[path] += 1


def tracked(files: int) -> set[str]:
    return {repository.path_of(n) for n in range(files)}


class Size:
    """What was found at one size of the tree."""

    def __init__(self, run: Run):
        self.run = run
        self.files = int(run.arm.parameters["files"])
        self.prepared: Prepared = run.oracle
        self.made = self.prepared.made
        self.all = {did.name: did for did in commands_of(run)}
        self.tracked = tracked(self.files)

    def stats(self, name: str) -> int:
        return sum(n for path, n in self.all[name].stats.items() if path in self.tracked)

    def opens(self, name: str) -> int:
        return sum(n for path, n in self.all[name].opened.items() if path in self.tracked)

    def objects(self, name: str, kind: str) -> int:
        return self.all[name].read(self.prepared.types, kind)

    def own(self, name: str) -> int:
        return len(self.all[name].objects & self.prepared.own)


COLUMNS = [
    Column("command", "", False, "git command, in a repository of loose objects"),
    Column("files", "count", False, "tracked files"),
    Column("stats", "count", True, "stat calls with the path of a tracked file"),
    Column("opens", "count", False, "tracked files that were opened"),
    Column("absent", "count", False, "opens that failed"),
    Column("trees", "count", False, "different trees that were opened"),
    Column("blobs", "count", False, "different blobs that were opened"),
    Column("index", "count", False, "times that the index was replaced"),
    Column("programs", "count", False, "programs that were executed"),
    Column("calls", "count", False, "all calls with a path"),
]


def commands_table(sizes: list[Size]) -> Result:
    rows = [
        [
            name, size.files, size.stats(name), size.opens(name), did.absent,
            size.objects(name, "tree"), size.objects(name, "blob"), did.renamed["index.lock"],
            did.execs, did.calls,
        ]
        for name in sizes[0].all
        for size in sizes
        for did in [size.all[name]]
    ]  # fmt: skip
    return result(
        "commands", "Commands", "What does each command look at, open and read?", COLUMNS, rows,
        notes=[
            "A checkout, a commit and am write objects too: what they open is not only read.",
            "Files that a merge or a checkout has just written are as young as the index: the next"
            " command opens them.",
        ],
    )  # fmt: skip


def status_table(sizes: list[Size]) -> Result:
    columns = [
        Column("tree", "", False, "tree; the source's was the kernel's"),
        Column("files", "count", False, "tracked files, by git ls-files"),
        Column("stats", "count", True, "stat calls with the path of a tracked file"),
        Column("git_stats", "count", False, "by git's own count (sum_lstat)"),
        Column("opens", "count", False, "tracked files that were opened"),
        Column("racy", "count", False, "opened when so many were as young as the index"),
    ]
    rows = [
        [
            f"{size.files:,} files", size.prepared.listed, size.stats("status"), git_stats(size),
            size.opens("status"), size.opens("status, racy files"),
        ]
        for size in sizes
    ]  # fmt: skip
    points = [[row[0], row[2]] for row in rows]
    picture = Picture("bars", {"x": "stats", "y": "tree", "scale": "log"})
    question = "Are files opened whose stat data are those of the index?"
    return result(
        "status", "Status", question, columns, [*rows, ["paper", PAPER_FILES, *[None] * 4]],
        picture, Rows(["tree", "stats"], points),
    )  # fmt: skip


def git_stats(size: Size) -> int:
    return sum(size.all["status"].counted.get(k, 0) for k in ("preload/sum_lstat", "sum_lstat")) + (
        size.all["status"].counted.get("refresh/sum_lstat", 0)
    )


def trees_of(size: Size) -> int:
    """That a diff must read: of both commits, the directories in which something differs."""
    return 2 * len(repository.directories_of(size.made.different))


MERGES = {"merge -s ort": 3, "merge -s resolve": 2}


def merges_table(sizes: list[Size]) -> Result:
    columns = [
        Column("merge", "", False, "way to merge"),
        Column("files", "count", False, "tracked files"),
        Column("paths", "count", False, "paths that the other side has changed"),
        Column("content", "count", False, "of these, paths that our side has changed as well"),
        Column("blobs", "count", True, "different blobs that were read"),
        Column("predicted", "count", False, "paths + 2 content (resolve), + 3 content (ort)"),
        Column("own", "count", False, "blobs read of paths that only our side has changed"),
    ]
    rows = [
        [
            name, size.files, CHANGED, BOTH, size.objects(name, "blob"), CHANGED + times * BOTH,
            size.own(name),
        ]
        for name, times in MERGES.items()
        for size in sizes
    ]  # fmt: skip
    paper = ["paper, half of the merges", PAPER_FILES, *PAPER_MERGE, None, None, None]
    question = "Are blobs read of paths that one side has changed only?"
    return result("merges", "Merges", question, columns, [*rows, paper])


def slope(points: list[tuple[int, int]]) -> float:
    """Of the logarithms: 1 if the one is proportional to the other."""
    (x1, y1), (x2, y2) = points[0], points[-1]
    return math.log(max(y2, 1) / max(y1, 1)) / math.log(x2 / x1)


def equal(name: str, pairs: list[tuple[str, int, int]], what: str) -> Check:
    bad = [f"{where}: {seen:,}, not {wanted:,}" for where, seen, wanted in pairs if seen != wanted]
    told = ", ".join(f"{seen:,}" for _, seen, _ in pairs)
    return Check(name, not bad, "; ".join(bad) or f"{told} {what}")


def checks_of(sizes: list[Size]) -> list[Check]:
    at = {size: f"{size.files:,} files" for size in sizes}
    found = [
        equal("status looks at each file once",
              [(at[s], s.stats("status"), s.prepared.listed) for s in sizes],
              "stat calls with a tracked path, as many as git ls-files has"),
        equal("status: git's own count",
              [(at[s], s.stats("status"), git_stats(s)) for s in sizes],
              "stat calls, as many as git counts (sum_lstat)"),
        equal("the index has these files",
              [(at[s], s.all["status"].counted.get("read/cache_nr", 0), s.prepared.listed)
               for s in sizes], "entries, by git's own count (read/cache_nr)"),
        equal("a settled index opens nothing", [(at[s], s.opens("status"), 0) for s in sizes],
              "tracked files opened"),
        equal("racy entries are opened",
              [(at[s], s.opens("status, racy files"), RACY) for s in sizes], "opened, all racy"),
        equal("trees read by diff",
              [(at[s], s.objects("diff of two trees", "tree"), trees_of(s)) for s in sizes],
              "trees, two for each directory with a change"),
        equal("blobs read by a merge",
              [(f"{name}, {at[s]}", s.objects(name, "blob"), CHANGED + times * BOTH)
               for name, times in MERGES.items() for s in sizes], "blobs, as predicted"),
        equal("blobs of our side only",
              [(f"{name}, {at[s]}", s.own(name), 0) for name in MERGES for s in sizes], "read"),
    ]  # fmt: skip
    traced = [(at[s], s.stats("status"), s.prepared.strace) for s in sizes
              if s.prepared.strace is not None]  # fmt: skip
    if traced:
        found.append(equal("status, by strace", traced, "stat calls, as in another run by strace"))
    return found


def analyse(plan: Plan, runs: list[Run]) -> Answer:
    sizes = [Size(run) for run in runs]
    answer = Answer([status_table(sizes), merges_table(sizes), commands_table(sizes)])
    answer.checks = checks_of(sizes)
    small, large = sizes[0], sizes[-1]
    trees = [s.objects("diff of two trees", "tree") for s in (small, large)]
    rise = slope([(s.files, s.stats("status")) for s in sizes])
    answer.sentences = [
        f"Cached stat data: status makes {large.stats('status'):,} stat calls for {large.files:,}"
        f" tracked files (slope {rise:.2f}) and opens {large.opens('status')} of them; it opens"
        f" {large.opens('status, racy files')} that are as young as the index, for it cannot know"
        " whether they changed after it was written.",
        f"Same id, no descent: the diff of two commits reads {trees[0]} trees where there are"
        f" {small.files:,} files, and {trees[1]} where there are {large.files:,}: two for each"
        " directory in which something differs.",
        *(
            f"One side only, no read: {name} of {CHANGED} paths, {BOTH} of them changed on both"
            f" sides, reads {large.objects(name, 'blob')} blobs, {large.own(name)} of them of paths"
            " that only our side has changed."
            for name in MERGES
        ),
        f"The source's kernel tree had {PAPER_FILES:,} files; half of its merges had up to"
        f" {PAPER_MERGE[0]} paths, of which {PAPER_MERGE[1]} needed a merge of contents.",
    ]
    left = [n for n in SIZES if n not in {s.files for s in sizes}]
    if left:
        answer.cannot.append(
            f"trees of {', '.join(f'{n:,}' for n in left)} files: they need a larger --budget"
        )
    if small.prepared.strace is None:
        answer.cannot.append("the count by strace: it is not here (apt-get install strace)")
    return answer


STUDY = Study(
    name="git",
    title="What git need not look at",
    question="Do git's commands look at, open and read no more than they claim?",
    paper="GIT - A Stupid Content Tracker (Hamano, Linux Symposium 2006)",
    found="A file whose stat data are those of the index is not opened; trees with the same name "
    "are not descended into; a path that one side has changed is merged without reading it.",
    schemata=("files",),
    arms=arms,
    analyse=analyse,
    seconds=60,
    least_seconds=24,
)
