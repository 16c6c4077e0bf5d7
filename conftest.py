# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What all suites of Python tests have in common: which tests are for the night, and what is
counted of a run.

How often a test that failed is run again is said in scripts/test, and how many may need it in
tests/tally.py.
"""

import json
import os
from pathlib import Path

import pytest
from disturbed import PREFIX
from nightly import HOW, SLOW


def pytest_configure(config):
    config.addinivalue_line(
        "markers", "nightly(why): takes too long for `make test`; KLOGGER_SLOW=1 runs it as well"
    )


def pytest_collection_modifyitems(items):
    for item in items:
        mark = item.get_closest_marker("nightly")
        if mark and not SLOW:
            reason = f"for the night ({mark.args[0]}): {HOW} runs it"
            item.add_marker(pytest.mark.skip(reason=reason))


def why_skipped(report) -> str:
    """The reason alone; a skip's longrepr is (file, line, "Skipped: reason")."""
    return (
        report.longrepr[2].removeprefix("Skipped: ")
        if isinstance(report.longrepr, tuple)
        else str(report.longrepr)
    )


def pytest_terminal_summary(terminalreporter):
    """Writes what tests/tally.py adds up to $KLOGGER_TALLY, if that is set."""
    path = os.environ.get("KLOGGER_TALLY")
    if not path:
        return
    stats = terminalreporter.stats
    skipped = [(report.nodeid, why_skipped(report)) for report in stats.get("skipped", [])]
    disturbed = [pair for pair in skipped if pair[1].startswith(PREFIX)]
    Path(path).write_text(
        json.dumps(
            {
                "passed": len(stats.get("passed", [])) + len(stats.get("xfailed", [])),
                "failed": [
                    report.nodeid for kind in ("failed", "error") for report in stats.get(kind, [])
                ],
                "skipped": len(skipped) - len(disturbed),
                "again": [report.nodeid for report in stats.get("rerun", [])],
                "disturbed": disturbed,
            }
        )
    )
