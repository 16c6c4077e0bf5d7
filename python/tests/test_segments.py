# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A folder of segments is read as one log, by every command."""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from logfile import START, LogFile

import klogger
from klogger.failure import Failure
from klogger.program import find_klogger

RECORDING = "0123456789abcdef" * 2
EVENTS = 10


def segment(folder: Path, number: int, recording: str = RECORDING, ending: str = "") -> Path:
    """Ten events of CPU 0 and one loss; those of number 1 have n = 0 to 9."""
    made = LogFile()
    made.built_in()
    made.event("TICK", "n:i64", schema="own")
    start = (number - 1) * 1_000_000
    about = {"recording": recording, "number": number, "start_ns": START + start}
    made.preamble = {"segment": about, "schemas": [{"name": "own"}]}
    made.begin(0, (number - 1) * (EVENTS + 3))
    for i in range(EVENTS):
        made.add(0, start + 1000 * i, "TICK", n=(number - 1) * EVENTS + i)
    made.add(0, start + 20_000, "LOST", count=3, since=START + start)
    made.ledger = [
        {
            "key": "ring_full", "severity": "loss", "source": "recording", "cpu": 0, "count": 3,
            "from_ns": START + start, "to_ns": START + start + 20_000, "text": "full. Remedy: none",
        }
    ]  # fmt: skip
    return made.write(folder / f"segment-{number:06}.klog{ending}")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "rec"
    made.mkdir()
    for number in range(1, 6):
        segment(made, number)
    return made


def run(*words: str | Path, **more: Any) -> subprocess.CompletedProcess[str]:
    command = [find_klogger(), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=180, check=False, **more)


def ok(*words: str | Path, **more: Any) -> str:
    done = run(*words, **more)
    assert done.returncode == 0, done.stderr
    return done.stdout


def numbers(text: str) -> list[int]:
    """`n` of the TICK events in lines of JSON."""
    rows = (json.loads(line) for line in text.splitlines())
    return [row["n"] for row in rows if "n" in row]


def test_cat_prints_all_segments_in_order(folder: Path) -> None:
    assert numbers(ok("cat", folder, "-e", "TICK", "--format", "json")) == list(range(50))
    some = ok("cat", folder, "-e", "TICK", "--where", "n >= 17", "--to", "2ms", "--format", "json")
    assert numbers(some) == [17, 18, 19, 20]
    assert ok("cat", f"{folder}/", "-e", "TICK").count("\n") == 50


def test_info_sums_up(folder: Path) -> None:
    about = json.loads(ok("info", folder, "--format", "json"))
    assert about["logged"] == 55  # with LOST
    assert about["lost"] == 15
    assert about["complete"] and about["sound"]
    assert [one["number"] for one in about["segments"]] == [1, 2, 3, 4, 5]
    assert [one["events"] for one in about["segments"]] == [10] * 5
    sizes = [(folder / one["file"]).stat().st_size for one in about["segments"]]
    assert [one["bytes"] for one in about["segments"]] == sizes
    assert about["bytes"] == sum(sizes)
    assert [one["start_ns"] - START for one in about["segments"]] == [
        n * 1_000_000 for n in range(5)
    ]
    # One entry, with what all say.
    (entry,) = about["ledger"]
    assert (entry["count"], entry["from_ns"] - START, entry["to_ns"] - START) == (15, 0, 4_020_000)
    page = ok("info", folder)
    assert "5 segments, number 1 to 5" in page
    assert "for 4.020 ms" in page


def test_one_segment_is_a_log(folder: Path) -> None:
    third = folder / "segment-000003.klog"
    about = json.loads(ok("info", third, "--format", "json"))
    assert (about["start_ns"] - START, about["logged"], about["lost"]) == (2_000_000, 11, 3)
    assert about["end_ns"] - about["start_ns"] == 20_000
    assert "for 20.000 us" in ok("info", third)
    assert numbers(ok("cat", third, "-e", "TICK", "--format", "json")) == list(range(20, 30))
    assert ok("cat", third, "-e", "TICK").lstrip().startswith("0.000000000 ")


def test_what_is_missing_is_one_entry(folder: Path) -> None:
    (folder / "segment-000001.klog").unlink()
    about = json.loads(ok("info", folder, "--format", "json"))
    assert [e["key"] for e in about["ledger"]] == ["ring_full", "segments_removed"]
    assert about["ledger"][1]["count"] == 13
    assert about["sound"]
    assert about["start_ns"] == START + 1_000_000
    assert run("cat", folder).stderr.count("\n") == 1  # of the losses

    (folder / "segment-000003.klog").unlink()
    about = json.loads(ok("info", folder, "--format", "json"))
    entry = next(e for e in about["ledger"] if e["key"] == "segments_missing")
    assert (entry["count"], entry["severity"]) == (13, "loss")
    assert entry["text"].startswith("segment 3: ")
    assert "segment 3 (segments of the recording are missing" in run("cat", folder).stderr


def test_other_folders_are_refused(folder: Path, tmp_path: Path) -> None:
    segment(folder, 9, recording="f" * 32)
    done = run("cat", folder)
    assert done.returncode == 2
    said = "segment-000001.klog and segment-000009.klog are of two recordings"
    assert said in done.stderr and "a folder of its own" in done.stderr
    empty = tmp_path / "empty"
    empty.mkdir()
    done = run("info", empty)
    assert done.returncode == 2
    assert "there are no segments of a recording here" in done.stderr
    with pytest.raises(Failure, match="nor one with the segments of a recording"):
        klogger.open(empty)


def count(folder: Path) -> int:
    with klogger.open(folder) as log:
        return int(log.sql("SELECT count(*) FROM TICK").fetchall()[0][0])


def test_sql_sees_what_is_added_and_removed(folder: Path) -> None:
    assert count(folder) == 50
    assert (folder.parent / "rec-parquet" / "meta.json").is_file()
    assert not list(folder.glob("*parquet*"))
    made = (folder.parent / "rec-parquet" / "meta.json").stat().st_mtime_ns
    assert count(folder) == 50
    assert (folder.parent / "rec-parquet" / "meta.json").stat().st_mtime_ns == made
    segment(folder, 6)
    assert count(folder) == 60
    (folder / "segment-000001.klog").unlink()
    assert count(folder) == 50
    assert "50" in ok("sql", folder, "SELECT count(*) FROM TICK", "--format", "csv")
    # In the folder itself.
    assert "50" in ok("sql", ".", "SELECT count(*) FROM TICK", "--format", "csv", cwd=folder)


def test_reports_comparisons_and_exports(folder: Path, tmp_path: Path) -> None:
    assert "55 events of 2 types, 15 missing" in ok("report", folder)
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    done = run("compare", folder, other)
    assert done.returncode == 0, done.stderr
    for to in ("perfetto", "ctf", "lttng", "json", "csv"):
        ok("export", folder, "--to", to, "-o", tmp_path / f"out-{to}")
    assert numbers((tmp_path / "out-json").read_text()) == list(range(50))


def test_a_damaged_segment_is_named(folder: Path) -> None:
    second = folder / "segment-000002.klog"
    second.write_bytes(second.read_bytes()[:-300])
    done = run("cat", folder, "-e", "TICK", "--format", "json")
    assert done.returncode == 0
    assert numbers(done.stdout) == list(range(50))
    assert "segment-000002.klog, bytes " in done.stderr
    about = json.loads(ok("info", folder, "--format", "json"))
    assert {d["file"] for d in about["damage"]} == {"segment-000002.klog"}
    assert about["lost"] == 15


def test_many_segments_need_few_files(tmp_path: Path) -> None:
    folder = tmp_path / "many"
    folder.mkdir()
    for number in range(1, 301):
        segment(folder, number)
    limit = 64

    def few() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))

    text = ok("cat", folder, "-e", "TICK", "--format", "json", preexec_fn=few)
    assert numbers(text) == list(range(300 * EVENTS))
    page = ok("info", folder, preexec_fn=few)
    assert "... 280 more" in page and "300 segments, number 1 to 300" in page


def test_user_stacks_of_a_folder_without_any(folder: Path) -> None:
    done = run("symbolize", folder)
    assert done.returncode == 2
    assert "has no user stacks" in done.stderr
