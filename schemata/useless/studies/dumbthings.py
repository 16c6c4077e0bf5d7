# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The rules of `useless`, measured: programs that do useless work a known number of times, each
with a twin that does the same job properly; ordinary programs; and the source's own numbers.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from klogger import executor
from klogger.analysis import Column, Picture
from klogger.failure import Failure
from klogger.log import Log
from klogger.program import find_klogger
from klogger_lab.study.model import Answer, Arm, Check, Plan, Run, Study, result

from . import _score as score
from ._paper import BOOT, OPENS, SHUTDOWN, STRACE, TIMERS

HERE = Path(__file__).resolve().parent
# Not a wrapper that starts the interpreter: its name is in the findings.
PYTHON = Path("/proc/self/exe").resolve()
# Of the zoo with the study's numbers, of the ordinary programs, and of the directories of fonts.
SECONDS = {"zoo": 20.0, "bystanders": 8.0, "fonts": 3.0}
TIMED = ["--set", "kernel_timers=true"]


def arms(plan: Plan) -> list[Arm]:
    """Without the time for all, the zoo has the numbers of the test."""
    many = plan.seconds >= sum(SECONDS.values())
    zoo = [PYTHON, "-I", HERE / "_zoo.py", folder(plan, "zoo"), find_klogger()]
    zoo += [*crashes(plan), *(["many"] if many else [])]
    others = [PYTHON, "-I", HERE / "_bystanders.py", folder(plan, "bystanders")]
    fonts = [PYTHON, "-I", HERE / "_zoo.py", folder(plan, "fonts"), "fonts"]
    seconds = SECONDS if many else {**SECONDS, "zoo": 10.0}
    return [
        Arm("zoo", zoo, seconds["zoo"], {"many": int(many)}, record=TIMED),
        Arm("fonts", fonts, seconds["fonts"]),
        Arm("bystanders", others, seconds["bystanders"], record=TIMED),
    ]


def folder(plan: Plan, name: str) -> Path:
    made = plan.folder / name
    made.mkdir(exist_ok=True)
    return made


def crashes(plan: Plan) -> list[Path]:
    """The program of D22 and D24, under the name that the zoo expects."""
    try:
        program = plan.build("crashes.c")
    except Failure:
        return []
    shutil.copy(program, plan.folder / "crashes")
    return [plan.folder / "crashes"]


@dataclass
class Recorded:
    """A run: its log, the tables of this schema's analyses, what the workload said of itself."""

    log: Log
    tables: dict[str, list[dict[str, Any]]]
    said: list[dict[str, Any]]


def recorded(run: Run) -> Recorded:
    assert run.log is not None
    chosen = [a for a in executor.choose(run.log) if a.schema == "useless"]
    tables = {
        r.analysis.name: [dict(zip(r.table.names, row, strict=True)) for row in r.table.rows]
        for r in executor.run_all(run.log, chosen)
    }
    said = [json.loads(line) for line in run.output.splitlines() if line.startswith("{")]
    return Recorded(run.log, tables, said)


def analyse(plan: Plan, runs: list[Run]) -> Answer:
    answer = Answer()
    by_name = {run.arm.name: recorded(run) for run in runs if run.log is not None}
    if zoo := by_name.get("zoo"):
        add_scores(answer, zoo)
        add_timers(answer, zoo)
    if fonts := by_name.get("fonts"):
        add_slope(answer, fonts)
    if others := by_name.get("bystanders"):
        add_bystanders(answer, others)
    add_totals(answer, by_name)
    add_warnings(answer)
    return answer


def add_scores(answer: Answer, zoo: Recorded) -> None:
    made = score.scores(zoo.said, zoo.tables["findings"])
    rows = [
        [
            each.rule, each.planted, each.true, len(each.missed), len(each.false), len(each.twins),
            each.recall, each.precision, each.skipped or "; ".join(map(why, each.missed)),
        ]
        for each in made
    ]  # fmt: skip
    columns = [
        Column("rule", "", False, "number of the rule"),
        Column("planted", "count", False, "what was planted"),
        Column("found", "count", False, "of that, found with its number"),
        Column("missed", "count", False, "of that, not found"),
        Column("false", "count", False, "findings that nobody planted; not of information"),
        Column("twins", "count", False, "findings of the rule in its twin"),
        Column("recall", "share", True, "recall: found, of what was planted"),
        Column("precision", "share", False, "planted, of what was found"),
        Column("why", "", False, "what was missed, or could not be planted here"),
    ]
    picture = Picture("bars", {"x": "recall", "y": "rule"})
    question = "How well does each rule find what was planted?"
    answer.results.append(result("score", "Score", question, columns, rows, picture))
    recall, precision = score.totals(made)
    answer.sentences.append(
        f"Recall {recall:.0%}, precision {precision:.0%}, of {len(made)} rules with"
        f" {sum(each.planted for each in made)} pieces of planted work."
    )
    answer.checks.append(Check("recall", recall >= 0.9, f"{recall:.3f}, at least 0.9"))
    answer.checks.append(Check("precision", precision >= 0.9, f"{precision:.3f}, at least 0.9"))
    twins = [(each.rule, one["object"]) for each in made for one in each.twins]
    answer.checks.append(Check("twins", not twins, f"{len(twins)} findings in twins: {twins}"))
    answer.cannot += [f"{each.rule}: {each.skipped}." for each in made if each.skipped]
    answer.cannot += [
        "D22 is not in a log: what is planted and found is the crash, with MALLOC_PERTURB_ set.",
        "D25 is not in a log.",
    ]


def why(missed: score.Row) -> str:
    clock = ", a number that depends on the clock" if missed["rule"] in score.BY_THE_CLOCK else ""
    return f"not found {missed['times']} times{clock}"


def add_slope(answer: Answer, fonts: Recorded) -> None:
    """Useless opens against files."""
    found = {f["object"]: f["times"] for f in fonts.tables["findings"] if f["rule"] == "D9"}
    rows = [[one["times"], found.get(one["object"], 0)] for one in fonts.said if "object" in one]
    columns = [
        Column("files", "count", False, "files of fonts in a directory"),
        Column("opens", "count", True, "useless opens that D9 finds"),
    ]
    picture = Picture("bars", {"x": "opens", "y": "files"})
    question = "What does each added font cost a program that looks into all of them?"
    answer.results.append(result("font_slope", "Fonts", question, columns, rows, picture))
    slope = slope_of([(files, opens) for files, opens in rows])
    answer.sentences.append(
        f"Each added font costs {slope:.2f} useless opens. The source saw boot's log nearly double"
        " with 6,000 more."
    )
    answer.checks.append(Check("font slope", abs(slope - 1) <= 0.02, f"{slope:.3f}, 1.00 +- 0.02"))


def slope_of(points: list[tuple[int, int]]) -> float:
    """Of the line with the least squares."""
    if len(points) < 2:
        return 0.0
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    above = sum((x - mean_x) * (y - mean_y) for x, y in points)
    return above / (sum((x - mean_x) ** 2 for x, _ in points) or 1)


def add_bystanders(answer: Answer, others: Recorded) -> None:
    """Findings by the ordinary program whose process, or descendant, they are about."""
    log, lines = others.log, others.said
    parents = dict(log.rows("SELECT pid, any_value(parent) FROM klogger.process GROUP BY pid"))
    names = {one["pid"]: one["bystander"] for one in lines if "pid" in one}
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in names.values()}
    for finding in others.tables["findings"]:
        pid = finding["pid"]
        while pid in parents and pid not in names:
            pid = parents[pid]
        if pid in names:
            found[names[pid]].append(finding)
    looks = looks_of(log, parents, names)
    rows = [[name, looks.get(name, 0), len(mine), rules_of(mine)] for name, mine in found.items()]
    columns = [
        Column("program", "", False, "ordinary program"),
        Column("looks", "count", False, "calls with a path, and fstat()"),
        Column("findings", "count", True, "findings, of all rules"),
        Column("rules", "", False, "which rules, how many of each"),
    ]
    picture = Picture("bars", {"x": "findings", "y": "program"})
    question = "What do the rules find in programs of which nobody planted anything?"
    notes = [
        "Some of these are right: interpreters and compilers ask again what they know.",
        "D3 is to be expected of what is told to read a whole tree.",
    ]
    answer.results.append(
        result("bystanders", "Bystanders", question, columns, rows, picture, notes=notes)
    )
    clean = [name for name, mine in found.items() if not mine]
    answer.sentences.append(f"{len(clean)} of {len(found)} ordinary programs have no finding.")
    missing = [one["bystander"] for one in lines if "skipped" in one]
    if missing:
        answer.cannot.append(f"Not on this machine: {', '.join(missing)}.")
    plain = {"sort", "grep -r", "find", "tar", "unpacking", "gzip", "sed", "awk", "sha256sum"}
    others_than_d3 = {
        name: [finding for finding in mine if finding["rule"] != "D3"]
        for name, mine in found.items()
        if name in plain
    }
    bad = {name: rules_of(mine) for name, mine in others_than_d3.items() if mine}
    answer.checks.append(
        Check("plain tools", not bad, f"but D3, in {', '.join(sorted(plain))}: {bad or 'none'}")
    )


def looks_of(log: Log, parents: dict[int, int], names: dict[int, str]) -> dict[str, int]:
    many: dict[str, int] = {}
    for tid, count in log.rows("SELECT tid, count(*) FROM LOOK GROUP BY tid"):
        pid = tid
        while pid in parents and pid not in names:
            pid = parents[pid]
        if pid in names:
            many[names[pid]] = many.get(names[pid], 0) + count
    return many


def rules_of(findings: list[dict[str, Any]]) -> str:
    rules = [finding["rule"] for finding in findings]
    return ", ".join(f"{rule} {rules.count(rule)}" for rule in sorted(set(rules), key=score.number))


def add_totals(answer: Answer, runs: dict[str, Recorded]) -> None:
    rows: list[list[Any]] = [
        [f"paper: {name}", *numbers] for name, numbers in (("boot", BOOT), ("shutdown", SHUTDOWN))
    ]
    rows.append(["paper: gnome-terminal", STRACE["stat"][0], *OPENS, None])
    for name, run in runs.items():
        for whole in run.tables["totals"][:1]:
            rows.append([name, *(whole[kind] for kind in ("stats", "opens", "failed", "execs"))])
    columns = [
        Column("of", "", False, "what was recorded"),
        Column("stats", "count", True, "calls of the stat family"),
        Column("opens", "count", False, "open calls"),
        Column("failed", "count", False, "open calls that failed"),
        Column("execs", "count", False, "programs run"),
    ]
    picture = Picture("bars", {"x": "stats", "y": "of"})
    question = "How many files are looked at, next to the numbers of the source?"
    notes = ["The source counted all processes of a machine, and older system calls."]
    answer.results.append(result("totals", "Totals", question, columns, rows, picture, notes=notes))


def add_timers(answer: Answer, zoo: Recorded) -> None:
    """The source's list of timers, re-made: those of the kernel's own, and of threads."""
    rows: list[list[Any]] = [["paper", name, count] for name, count in TIMERS]
    rows += [["today", one["function"], one["times"]] for one in zoo.tables["kernel_timers"]]
    columns = [
        Column("when", "", False, "whose list"),
        Column("function", "", False, "what the timer calls, or whose it is"),
        Column("times", "count", True, "expiries while it was measured"),
    ]
    question = "Which timers expire most often, next to the source's list?"
    notes = ["The periods that the source states do not fit one length: compare no rates."]
    answer.results.append(result("timers", "Timers", question, columns, rows, notes=notes))


TRANSPOSED = """
#include <string.h>
void fill(char *p, unsigned long n);
void fill(char *p, unsigned long n) {{ {calls} }}
"""


def add_warnings(answer: Answer) -> None:
    """D23 by the compiler: seven planted calls, and the twin with its arguments in order."""
    cc = shutil.which("gcc")
    if cc is None:
        answer.cannot.append("D23 is not in a log, and there is no gcc to warn of it.")
        return
    counts = []
    for call in ("memset(p, sizeof(int), 0);", "memset(p, 0, sizeof(int));"):
        source = TRANSPOSED.format(calls=f"(void)n; {call * 7}")
        words = [cc, "-fsyntax-only", "-Wmemset-transposed-args", "-x", "c", "-"]
        done = subprocess.run(words, input=source, capture_output=True, text=True, check=False)
        counts.append(done.stderr.count("[-Wmemset-transposed-args]"))
    answer.cannot.append("D23 is not in a log: a compiler sees it, see the check.")
    said_so = f"{counts[0]} warnings of 7 planted, {counts[1]} in the twin"
    answer.checks.append(Check("D23 by gcc", counts == [7, 0], said_so))


STUDY = Study(
    name="dumbthings",
    title="Useless work",
    question="How well do the rules find useless work, and what do they find in ordinary programs?",
    paper="Why Userspace Sucks (Jones, 2006)",
    found="Boot made 79,576 stat and 26,769 open calls; programs read unchanged files up to 54"
    " times, opened thousands of fonts, and woke up idle machines.",
    schemata=("files", "useless", "lifecycle", "overruns"),
    arms=arms,
    analyse=analyse,
    seconds=45,
    least_seconds=30,
)
