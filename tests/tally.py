#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Adds up what the suites of a run left, prints the table, and gives the verdict by its exit code.

usage: tally.py FOLDER SUITE=CODE...

FOLDER has of each suite test-SUITE.log, test-SUITE.time (seconds: real, user, system), and, if its
tests are pytest's, test-SUITE.json (see conftest.py). CODE is the exit code of the suite.
"""

import json
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

# Of the tests that may be run again, or end as disturbed: so many may, for the machine's sake; one
# may in any case.
MOST_SHARE = 0.01


@dataclass
class Suite:
    """What its tests came to, and the seconds that it took and that it kept CPUs busy."""

    name: str
    passed: int = 0
    failed: list[str] = field(default_factory=list)
    skipped: int = 0
    again: list[str] = field(default_factory=list)
    disturbed: list[tuple[str, str]] = field(default_factory=list)
    seconds: float = 0
    cpu_seconds: float = 0
    # Whether its tests can be run again and be disturbed.
    counts: bool = False

    @property
    def ran(self) -> int:
        return self.passed + len(self.failed) + len(self.disturbed)


def read(folder: Path, name: str, code: int) -> Suite:
    log = (folder / f"test-{name}.log").read_text(errors="replace")
    suite = Suite(name)
    results = folder / f"test-{name}.json"
    if results.exists():
        suite = Suite(name, **json.loads(results.read_text()), counts=True)
    elif name == "lint":
        suite.passed = len(re.findall(r"^ +(?:\x1b\S*?m)?ok\b", log, re.M))
        suite.failed = re.findall(r"^ +(?:\x1b\S*?m)?failed(?:\x1b\S*?m)? ([^,\n]+),", log, re.M)
    else:
        sums = re.findall(r"^test result: .*? (\d+) passed; (\d+) failed; (\d+) ignored", log, re.M)
        suite.passed = sum(int(passed) for passed, _, _ in sums)
        suite.failed = re.findall(r"^test (.*) \.\.\. FAILED$", log, re.M)
        suite.skipped = sum(int(ignored) for _, _, ignored in sums)
    # A suite can fail before it counts: it does not compile, or it was ended.
    if code != 0 and not suite.failed:
        suite.failed = [f"the suite itself, with exit code {code}"]
    times = (folder / f"test-{name}.time").read_text().split()
    suite.seconds, suite.cpu_seconds = float(times[-3]), float(times[-2]) + float(times[-1])
    return suite


def table(suites: list[Suite]) -> str:
    rows = [("suite", "passed", "failed", "skipped", "again", "disturbed", "seconds", "of CPU")]
    for s in suites:
        counts = (s.passed, len(s.failed), s.skipped, len(s.again), len(s.disturbed))
        rows.append((s.name, *map(str, counts), f"{s.seconds:.0f}", f"{s.cpu_seconds:.0f}"))
    sums = (sum(int(row[column]) for row in rows[1:]) for column in range(1, 8))
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


def rate(what: str, names: list[str], ran: int) -> tuple[str, bool]:
    """The line about tests that did not simply pass or fail, and whether there are too many."""
    bad = len(names) > max(1, MOST_SHARE * ran)
    text = (
        f"{what}: {len(names)} of {ran} tests ({len(names) / max(ran, 1):.1%}; at most"
        f" {MOST_SHARE:.0%})"
    )
    return text + (": too many" if bad else ""), bad


def verdict(suites: list[Suite]) -> tuple[list[str], bool]:
    """What there is to say below the table, and whether the run is good."""
    lines = [f"failed: {name}" for suite in suites for name in suite.failed]
    good = not lines and any(suite.passed for suite in suites)
    counted = [suite for suite in suites if suite.counts]
    ran = sum(suite.ran for suite in counted)
    again = [name for suite in counted for name in suite.again]
    disturbed = [f"{name}: {why}" for suite in counted for name, why in suite.disturbed]
    for what, names in (("run again", again), ("disturbed", disturbed)):
        text, bad = rate(what, names, ran)
        if counted:
            lines += [text, *(f"  {name}" for name in names)]
        good = good and not bad
    return lines, good


def main(words: list[str]) -> int:
    folder = Path(words[0])
    given = (word.rsplit("=", 1) for word in words[1:])
    suites = [read(folder, name, int(code)) for name, code in given]
    print(table(suites))
    lines, good = verdict(suites)
    print("\n".join(lines))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
