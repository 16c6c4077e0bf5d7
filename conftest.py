# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What all suites of Python tests have in common: which tests a run has, what is kept of those that
fail, and what is counted.

That tests which failed are run once more is said in scripts/test, and how many may need it in
tests/tally.py.
"""

import json
import os
from pathlib import Path

import pytest
from disturbed import PREFIX
from evidence import describe_logs, folder_of, why_failed
from tiers import FULL, HOW, SLOW, are_named

# How many tests were left to `make test-all`; with pytest-xdist each worker counts all of them.
LEFT = pytest.StashKey[int]()


def pytest_configure(config):
    # No test but those of debuginfod asks a server for names, whatever the shell is set to.
    os.environ.pop("DEBUGINFOD_URLS", None)
    config.addinivalue_line(
        "markers", "full(why): not in the gate; `make test-all`, or KLOGGER_FULL=1, runs it as well"
    )
    config.addinivalue_line(
        "markers", "nightly(why): takes too long for a day; KLOGGER_SLOW=1 runs it as well"
    )


def pytest_collection_modifyitems(config, items):
    for item in items:
        mark = item.get_closest_marker("nightly")
        if mark and not SLOW:
            reason = f"for the night ({mark.args[0]}): {HOW} runs it"
            item.add_marker(pytest.mark.skip(reason=reason))
    if FULL or are_named(config.args, config.invocation_params.dir):
        return
    left = [item for item in items if is_left(item)]
    config.stash[LEFT] = len(left)
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if not is_left(item)]


def is_left(item) -> bool:
    """What is for the night is for `make test-all` to skip, with its reason."""
    return any(item.get_closest_marker(name) for name in ("full", "nightly"))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    outcome = yield
    report = outcome.get_result()
    if report.failed:
        base = item.config._tmp_path_factory.getbasetemp()
        folder = folder_of(getattr(item, "funcargs", {}), base)
        if folder is not None:
            describe_logs(folder)
        report.user_properties.append(("evidence", (why_failed(report), str(folder or ""))))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """What a worker of pytest-xdist counted."""
    output = getattr(node, "workeroutput", {})
    node.config.stash[LEFT] = output.get("left", 0)


def pytest_sessionfinish(session):
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left"] = session.config.stash.get(LEFT, 0)


def why_skipped(report) -> str:
    """The reason alone; a skip's longrepr is (file, line, "Skipped: reason")."""
    return (
        report.longrepr[2].removeprefix("Skipped: ")
        if isinstance(report.longrepr, tuple)
        else str(report.longrepr)
    )


def failures_in(stats) -> list[tuple[str, str, str]]:
    """(test, why, folder), once of a test that failed and could not be ended either."""
    found = {}
    for kind in ("failed", "error"):
        for report in stats.get(kind, []):
            evidence = dict(getattr(report, "user_properties", [])).get("evidence")
            why, folder = evidence or (why_failed(report), "")
            found.setdefault(report.nodeid, (report.nodeid, why, folder))
    return list(found.values())


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
                "failed": failures_in(stats),
                "skipped": len(skipped) - len(disturbed),
                "disturbed": disturbed,
                "left": terminalreporter.config.stash.get(LEFT, 0),
            }
        )
    )
