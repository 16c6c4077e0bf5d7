# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Logs of earlier versions of the schemata: analyses do without fields that came later, or say that
the log has none; the others go on.
"""

import contextlib
import re
from dataclasses import replace
from pathlib import Path

import pytest
import support

import klogger
from klogger import executor, expectation

# What came later: fields of events, and decodings that had other names.
LATER = {"block": ["kernel"], "writeback": ["kernel"], "mutex": ["lock_object"]}
LOGS = {
    "block": "askers.expect", "writeback": "writers-named.expect",
    "mutex": "uncontended.expect",
}  # fmt: skip
# Analyses that cannot do without.
CANNOT = {"mutex": ["uncontended"]}


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch):
    """Declarations as they were before some fields and decodings came."""
    events_of, decodings_of = expectation.smalllog.events_of, expectation.smalllog.decodings_of

    def leave_out(names: list[str]) -> None:
        def events(*schemata):
            return [
                replace(event, fields=[f for f in event.fields if f["name"] not in names])
                for event in events_of(*schemata)
            ]

        def decodings(schema):
            return [row for row in decodings_of(schema) if row[0] not in names]

        monkeypatch.setattr(expectation.smalllog, "events_of", events)
        monkeypatch.setattr(expectation.smalllog, "decodings_of", decodings)

    return leave_out


@pytest.mark.parametrize("schema", LATER)
def test_a_log_of_an_earlier_version(schema: str, tmp_path: Path, without) -> None:
    without(LATER[schema])
    case = (support.ROOT / "schemata" / schema / "expect" / LOGS[schema]).read_text()
    (tmp_path / "old.expect").write_text(re.sub(r" kernel=1", "", case))
    log_path = expectation.make(
        expectation.read(tmp_path / "old.expect", schema), tmp_path / "x.klog-parquet"
    )
    with contextlib.closing(klogger.open(log_path)) as log:
        chosen = [a for a in executor.choose(log) if a.schema == schema]
        found = {result.analysis.name: result for result in executor.run_all(log, chosen)}
    assert found.keys() >= set(CANNOT.get(schema, [])) and found
    for name, result in found.items():
        if name in CANNOT.get(schema, []):
            assert result.status == "not_recorded", result.reason
            assert result.reason == (
                f"the log is of an earlier version of '{schema}', without"
                f" '{LATER[schema][0]}': record it again for this answer"
            )
        else:
            # Or the case has no events of another schema that it needs.
            assert result.status != "failed", result.reason
            assert "earlier version" not in result.reason, result.reason


def test_a_name_that_no_version_has_is_still_an_error(tmp_path: Path) -> None:
    log_path = expectation.make(
        expectation.read(support.ROOT / "schemata/block/expect/askers.expect", "block"),
        tmp_path / "x.klog-parquet",
    )
    with contextlib.closing(klogger.open(log_path)) as log:
        (one,) = [a for a in executor.choose(log) if a.name == "askers"]
        failure = 'Referenced column "kernell" not found in FROM clause'
        assert executor.of_older_schema(log, one, failure) == ""
        # This log has it.
        assert executor.of_older_schema(log, one, failure.replace("kernell", "kernel")) == ""
