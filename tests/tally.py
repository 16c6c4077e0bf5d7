#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Adds up what the suites of a run left, prints the table, and gives the verdict by its exit code.

usage: tally.py FOLDER [elapsed=SECONDS] SUITE=CODE...
       tally.py --failed FOLDER SUITE    the tests that failed, to be run once more; none if there
                                         are so many that the machine cannot be the reason

FOLDER has of each suite test-SUITE.log, test-SUITE.time (seconds: real, user, system), and, if its
tests are pytest's, test-SUITE.json (see conftest.py). If those that failed were run once more, it
has test-SUITE-again.json and test-SUITE-again.time too. CODE is the exit code of the suite. SECONDS
is what all took together: suites run beside each other.
"""

import json
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

# Of the tests that look at the machine, for its sake: so many may pass only when they are run once
# more, and so many may end without a verdict. A few may in any case.
MOST_AGAIN = 0.01
MOST_DISTURBED = 0.03
FEW = 3
# Of one suite; if more fail, something is broken, and to run them again takes long.
MOST_TRIED = 20


class Failure(NamedTuple):
    """A test, one line of why it failed, and the folder with its logs, if there is one."""

    name: str
    why: str = ""
    folder: str = ""


@dataclass
class Suite:
    """What its tests came to, and the seconds that it took and that it kept CPUs busy. `left` were
    not to run, as this is the gate.
    """

    name: str
    passed: int = 0
    failed: list[Failure] = field(default_factory=list)
    skipped: int = 0
    again: list[Failure] = field(default_factory=list)
    disturbed: list[tuple[str, str]] = field(default_factory=list)
    left: int = 0
    seconds: float = 0
    cpu_seconds: float = 0
    # Whether its tests can be run again and be disturbed.
    counts: bool = False

    @property
    def ran(self) -> int:
        return self.passed + len(self.failed) + len(self.disturbed)


def results_of(folder: Path, name: str) -> dict | None:
    path = folder / f"test-{name}.json"
    if not path.exists():
        return None
    found = json.loads(path.read_text())
    found["failed"] = [Failure(*words) for words in found["failed"]]
    found["disturbed"] = [tuple(pair) for pair in found["disturbed"]]
    return found


def read(folder: Path, name: str, code: int) -> Suite:
    log = (folder / f"test-{name}.log").read_text(errors="replace")
    suite = Suite(name)
    results = results_of(folder, name)
    if results is not None:
        suite = Suite(name, **results, counts=True)
    elif name == "lint":
        suite.passed = len(re.findall(r"^ +(?:\x1b\S*?m)?ok\b", log, re.M))
        said = re.findall(r"^ +(?:\x1b\S*?m)?failed(?:\x1b\S*?m)? ([^,\n]+),", log, re.M)
        suite.failed = [Failure(step) for step in said]
    else:
        sums = re.findall(r"^test result: .*? (\d+) passed; (\d+) failed; (\d+) ignored", log, re.M)
        suite.passed = sum(int(passed) for passed, _, _ in sums)
        suite.failed = [
            Failure(test) for test in re.findall(r"^test (.*) \.\.\. FAILED$", log, re.M)
        ]
        suite.skipped = sum(int(ignored) for _, _, ignored in sums)
    # A suite can fail before it counts: it does not compile, or it was ended.
    if code != 0 and not suite.failed:
        suite.failed = [Failure("the suite itself", f"exit code {code}")]
    join_second_try(suite, results_of(folder, f"{name}-again"))
    for part in (name, f"{name}-again"):
        if (path := folder / f"test-{part}.time").exists():
            real, user, system = map(float, path.read_text().split()[-3:])
            suite.seconds += real
            suite.cpu_seconds += user + system
    return suite


def join_second_try(suite: Suite, second: dict | None) -> None:
    """A test that failed, and passed when it ran alone, was run again; one that had no verdict then
    has none.
    """
    if second is None:
        return
    failed = {failure.name for failure in second["failed"]}
    disturbed = {name for name, _ in second["disturbed"]}
    if not failed and second["passed"] + len(disturbed) == 0:
        return
    first = suite.failed
    suite.failed = [failure for failure in first if failure.name in failed]
    suite.again = [f for f in first if f.name not in failed | disturbed]
    suite.disturbed += second["disturbed"]
    suite.passed += len(suite.again)


def table(suites: list[Suite], elapsed: int | None) -> str:
    head = ("suite", "passed", "failed", "skipped", "again", "disturbed", "left out", "seconds")
    rows = [(*head, "of CPU")]
    for s in suites:
        counts = (s.passed, len(s.failed), s.skipped, len(s.again), len(s.disturbed), s.left)
        rows.append((s.name, *map(str, counts), f"{s.seconds:.0f}", f"{s.cpu_seconds:.0f}"))
    sums = [sum(int(row[column]) for row in rows[1:]) for column in range(1, len(rows[0]))]
    if elapsed is not None:
        sums[head.index("seconds") - 1] = elapsed
    rows.append(("total", *map(str, sums)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for name, *numbers in rows:
        cells = [
            name.ljust(widths[0]),
            *(n.rjust(width) for n, width in zip(numbers, widths[1:], strict=True)),
        ]
        lines.append("  " + "  ".join(cells))
    return "\n".join(lines)


def rate(what: str, count: int, ran: int, most: float) -> tuple[str, bool]:
    """The line about tests that did not simply pass or fail, and whether there are too many."""
    bad = count > max(FEW, most * ran)
    text = f"{what}: {count} of {ran} tests ({count / max(ran, 1):.1%}; at most {most:.0%})"
    return text + (": too many" if bad else ""), bad


def shown(failure: Failure) -> list[str]:
    lines = [f"  {failure.name}"]
    lines += [f"    {failure.why}"] if failure.why else []
    return lines + ([f"    in {failure.folder}"] if failure.folder else [])


def verdict(suites: list[Suite]) -> tuple[list[str], bool]:
    """What there is to say below the table, and whether the run is good."""
    failed = [failure for suite in suites for failure in suite.failed]
    lines = [f"failed: {len(failed)}"] if failed else []
    lines += [line for failure in failed for line in shown(failure)]
    good = not failed and any(suite.passed for suite in suites)
    counted = [suite for suite in suites if suite.counts]
    ran = sum(suite.ran for suite in counted)
    again = [line for suite in counted for failure in suite.again for line in shown(failure)]
    disturbed = [f"  {name}: {why}" for suite in counted for name, why in suite.disturbed]
    count = sum(len(suite.again) for suite in counted)
    for what, number, said, most in (
        ("run again", count, again, MOST_AGAIN),
        ("disturbed", len(disturbed), disturbed, MOST_DISTURBED),
    ):
        text, bad = rate(what, number, ran, most)
        if counted:
            lines += [text, *said]
        good = good and not bad
    return lines, good


def main(words: list[str]) -> int:
    if words[0] == "--failed":
        results = results_of(Path(words[1]), words[2]) or {"failed": []}
        names = [failure.name for failure in results["failed"]]
        print("".join(f"{name}\n" for name in names if len(names) <= MOST_TRIED), end="")
        return 0
    folder = Path(words[0])
    given = [word.rsplit("=", 1) for word in words[1:]]
    elapsed = next((int(number) for name, number in given if name == "elapsed"), None)
    suites = [read(folder, name, int(code)) for name, code in given if name != "elapsed"]
    print(table(suites, elapsed))
    lines, good = verdict(suites)
    print("\n".join(lines))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
