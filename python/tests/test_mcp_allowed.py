# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What agents may do: the user's configuration, and what it refuses."""

from __future__ import annotations

import shutil
import signal
import threading
from pathlib import Path

import pytest
import support

from klogger.failure import Failure
from klogger_lab.mcp import allowed, recording
from klogger_lab.mcp.allowed import Allowed, Recordings
from klogger_lab.mcp.recording import Wish
from klogger_lab.mcp.tools import Session

LOGS = support.ROOT / "tests" / "logs"
FOLDER = Path("/nowhere")
ALL = Recordings(("waits", "peers"), FOLDER, 5.0, 1 << 20, all=True, pids=True, commands=True)


@pytest.mark.parametrize(
    ("recordings", "wish", "written"),
    [
        (ALL, Wish(("waits", "x"), command=("true",)), 'schemata = ["waits", "peers", "x"]'),
        (ALL, Wish((), command=("true",)), "list_schemata"),
        (ALL, Wish(("waits",), 6, command=("true",)), "seconds = 6"),
        (ALL, Wish(("waits",), 0, command=("true",)), "seconds = 0"),
        (ALL, Wish(("waits",), float("nan"), command=("true",)), ""),
        (ALL, Wish(("waits",), float("inf"), command=("true",)), ""),
        (ALL, Wish(("waits",), 10**400, command=("true",)), ""),
        (ALL, Wish(("waits",), -(10**400), command=("true",)), ""),
        (Recordings(("waits",), FOLDER), Wish(("waits",), command=("true",)), "commands = true"),
        (Recordings(("waits",), FOLDER), Wish(("waits",), pid=1), "pids = true"),
        (Recordings(("waits",), FOLDER), Wish(("waits",), all=True), "all = true"),
        (Recordings(("waits",), FOLDER, commands=True),
         Wish(("waits",), command=("true",), all=True), "all = true"),
        (ALL, Wish(("waits",)), ""),
        (ALL, Wish(("waits",), pid=1, command=("true",)), ""),
        (ALL, Wish(("waits",), pid=1, all=True), ""),
        (ALL, Wish(("waits",), pid=0), ""),
        (ALL, Wish(("waits",), pid=-5), ""),
    ],
)  # fmt: skip
def test_what_is_not_allowed_is_not_recorded(
    recordings: Recordings, wish: Wish, written: str
) -> None:
    here = Allowed(Path("mcp.toml"), record=recordings)
    with pytest.raises(Failure) as failed:
        recording.record(here, wish, threading.Event())
    assert written in (failed.value.help or "")


@pytest.mark.parametrize(
    "seconds", [float("nan"), float("inf"), 10**400], ids=["nan", "inf", "400 digits"]
)
def test_numbers_are_finite(seconds: float) -> None:
    given = {"schemata": ["waits"], "command": ["true"], "seconds": seconds}
    text, failed = Session(Allowed(Path("mcp.toml"), record=ALL)).call("record", given)
    assert failed and "'seconds' is not" in text


def test_what_cannot_be_ended_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program with another user's rights, as sudo and su are."""
    asked = []

    def refuse(group: int, number: int) -> None:
        asked.append((group, number))
        raise PermissionError

    monkeypatch.setattr("os.killpg", refuse)
    recording.end_group(7)
    assert asked == [(7, signal.SIGTERM), (7, signal.SIGKILL)]


def test_what_is_allowed() -> None:
    here = Allowed(Path("mcp.toml"), record=ALL)
    for wish in (
        Wish(("waits",), 5, command=("true",)), Wish(("waits", "peers"), pid=1),
        Wish(("waits",), 0.5, all=True), Wish(("waits",), command=("true",), all=True),
    ):  # fmt: skip
        assert recording.bounds(here, wish) == (ALL, wish.seconds or 5.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("read = 3", "'read' is not a list"), ('read = ["logs"]', "does not begin with /"),
        ("reed = []", "there is no 'reed'"), ("record = 1", "not a table"),
        ("[", "at end of document"),
        ("[record]", "'record.schemata' is missing"),
        ('[record]\nschemata = ["a"]', "'record.folder' is missing"),
        ('[record]\nschemata = ["/tmp/x.klogger"]\nfolder = "/x"', "not the name of a schema"),
        ('[record]\nschemata = []\nfolder = "/x"\nall = 1', "true or false"),
        ('[record]\nschemata = []\nfolder = "/x"\nbytes = "1T"', "not a size"),
        ('[record]\nschemata = []\nfolder = "/x"\nbytes = 0', "not a size"),
        ('[record]\nschemata = []\nfolder = "/x"\nseconds = true', "number of seconds"),
        ('[record]\nschemata = []\nfolder = "/x"\nseconds = inf', "number of seconds"),
        ('[record]\nschemata = []\nfolder = "/x"\npid = true', "did you mean pids?"),
        ("query_seconds = 0", "number of seconds"),
    ],
)  # fmt: skip
def test_configurations_that_are_wrong(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "mcp.toml"
    file.write_text(text)
    with pytest.raises(Failure) as failed:
        allowed.load(file)
    assert message in str(failed.value) and str(file) in str(failed.value)


def test_a_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert allowed.load() == Allowed(tmp_path / "klogger" / "mcp.toml", (Path.cwd(),))
    file = tmp_path / "klogger" / "mcp.toml"
    file.parent.mkdir()
    file.write_text(
        'read = ["/a", "~/b"]\nquery_seconds = 2\n[record]\nschemata = ["waits"]\nfolder = "/c"\n'
        'seconds = 3\nbytes = "2M"\nall = true\n'
    )
    record = Recordings(("waits",), Path("/c"), 3.0, 2 << 20, all=True)
    assert allowed.load() == Allowed(file, (Path("/a"), Path.home() / "b"), 2.0, record)
    # Others could write what they like to be allowed.
    file.chmod(0o666)
    with pytest.raises(Failure, match="can be written by other users"):
        allowed.load()


def test_a_folder_that_others_can_write_has_no_logs(tmp_path: Path) -> None:
    log = shutil.copy(LOGS / "v4.klog", tmp_path / "x.klog")
    here = Allowed(tmp_path / "mcp.toml", (tmp_path,))
    assert here.log(str(log)) == log
    tmp_path.chmod(0o777)
    with pytest.raises(Failure, match="not allowed"):
        here.log(str(log))
    tmp_path.chmod(0o700)
    within = tmp_path / "within"
    within.mkdir(mode=0o700)
    shutil.copy(log, within / "x.klog")
    assert here.log(str(within / "x.klog")) == within / "x.klog"
    within.chmod(0o777)
    with pytest.raises(Failure, match="not allowed"):
        here.log(str(within / "x.klog"))


def test_a_log_that_is_a_folder_is_not_written_by_others(tmp_path: Path, small_log: Path) -> None:
    """As a folder that it is in is not."""
    folder = shutil.copytree(small_log, tmp_path / "run1")
    here = Allowed(tmp_path / "mcp.toml", (tmp_path,))
    assert here.log(str(folder)) == folder
    folder.chmod(0o777)
    with pytest.raises(Failure, match="not allowed"):
        here.log(str(folder))


def test_entries_of_datasets_are_refused(tmp_path: Path) -> None:
    """They name other files, and whoever has made one chose which."""
    here = Allowed(tmp_path / "mcp.toml", (tmp_path,))
    entry = tmp_path / "recordings" / "e5665014-8786-525f-b504-77754e6832d1.json"
    entry.parent.mkdir(mode=0o700)
    entry.write_text("{}")
    (tmp_path / "x.klog").symlink_to(entry)
    for path in (entry, tmp_path / "x.klog"):
        with pytest.raises(Failure, match="is of a dataset"):
            here.log(str(path))


def test_tables_are_regular_files(tmp_path: Path, small_log: Path) -> None:
    """Those of a folder, at any depth, and those beside a log, which are read in its place."""
    here = Allowed(tmp_path / "mcp.toml", (tmp_path,))
    log = tmp_path / "x.klog"
    shutil.copy(LOGS / "v4.klog", log)
    folder = shutil.copytree(small_log, tmp_path / "x.klog-parquet")
    within = folder / "within"
    within.mkdir(mode=0o700)
    for path in (log, folder):
        assert here.log(str(path)) == path
    for bad in (folder / "A.parquet", within / "A.parquet"):
        bad.symlink_to("/etc/passwd")
        for path in (log, folder):
            with pytest.raises(Failure, match="more than regular files"):
                here.log(str(path))
        bad.unlink()
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Failure, match="is not a folder"):
        here.log(str(log))
