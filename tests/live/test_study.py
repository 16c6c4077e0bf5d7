# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Every study of every schema, in the least time it can do: its checks hold, or it says why it
cannot be run. One of them each time, all at night."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from disturbed import Quiet

from klogger_lab.study import discover

SMOKE = "chat"
STUDIES = [
    name if name == SMOKE else pytest.param(name, marks=pytest.mark.nightly("a study"))
    for name in sorted(discover.files())
]
# A study of 10 s may well take this long on a machine that does eight other things.
LIMIT = 240

SLEEPER = """
from klogger_lab.study.model import Answer, Arm, Study
import contextlib

@contextlib.contextmanager
def around():
    open({state!r}, "w").close()
    try:
        yield 1
    finally:
        import os
        os.unlink({state!r})

def arms(plan):
    command = ["sh", "-c", "echo $$ > {pid}; setsid sleep 300 & exec sleep 300"]
    return [Arm("asleep", command, 300, around=around)]

STUDY = Study("sleeper", "T", "Q?", "Figure 0", "Nothing.", ("scheduler",), arms,
              lambda plan, runs: Answer())
"""

ODD = r"""
#include <sys/prctl.h>
#include <unistd.h>

int main(void)
{
    prctl(PR_SET_NAME, "\xff\xfe\x1b[31m\x80");
    for (int i = 0; i < 50; i++)
        usleep(1000);
}
"""


def study(klogger: Path, *words, **more) -> subprocess.Popen:
    environment = {**os.environ, "KLOGGER": str(klogger), **more}
    command = [sys.executable, "-m", "klogger_lab.cli.study", *map(str, words)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def answer_of(klogger: Path, name: str, folder: Path) -> dict:
    least = discover.find(name).study.least_seconds
    process = study(klogger, name, "--budget", f"{least}s", "--format", "json", TMPDIR=str(folder))
    try:
        out, err = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)
        pytest.fail(f"not done after {LIMIT} s: {process.communicate()[1]}")
    assert process.returncode in (0, 1), err
    (answer,) = json.loads(out)["studies"]
    assert (process.returncode == 0) == all(check["ok"] for check in answer["checks"])
    return answer


@pytest.mark.full("others of this file are in the gate")
@pytest.mark.parametrize("name", STUDIES)
def test_study_in_its_least_time(name, klogger, tmp_path, clean_kernel):
    with Quiet() as quiet:
        answer = answer_of(klogger, name, tmp_path)
    # An answer, with what it was checked against; or why there is none.
    assert answer["cannot"] or (answer["results"] and answer["sentences"] and answer["checks"])
    assert list(tmp_path.iterdir()) == []
    failed = [f"{check['name']}: {check['text']}" for check in answer["checks"] if not check["ok"]]
    if failed:
        quiet.check("; ".join(failed))


@pytest.mark.full("others of this file are in the gate")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_study_leaves_nothing_behind(number, klogger, tmp_path, clean_kernel):
    folder = tmp_path / "schemata" / "scheduler" / "studies"
    folder.mkdir(parents=True)
    state, pid, temporary = tmp_path / "state", tmp_path / "pid", tmp_path / "tmp"
    temporary.mkdir()
    (folder / "sleeper.py").write_text(SLEEPER.format(state=str(state), pid=pid))
    process = study(
        klogger, "sleeper", KLOGGER_SCHEMATA=str(tmp_path / "schemata"), TMPDIR=str(temporary)
    )
    try:
        wait_for(lambda: pid.exists() and pid.read_text().strip())
        assert state.exists()
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, err
    assert not state.exists()
    assert list(temporary.iterdir()) == []
    assert not Path(f"/proc/{pid.read_text().strip()}").exists()
    assert sleepers(str(temporary)) == []


def sleepers(folder: str) -> list[int]:
    """Processes whose working directory is, or was, in a folder."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cwd"):
        try:
            if os.readlink(place).startswith(folder):
                found.append(int(place.parent.name))
        except OSError:
            pass
    return found


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


def test_names_that_are_no_text(klogger, tmp_path, recorder):
    """A program may call itself anything: the analyses show it, and nothing that acts on a
    terminal.
    """
    if shutil.which("cc") is None:
        pytest.skip("no C compiler here")
    source = tmp_path / "odd.c"
    source.write_text(ODD)
    subprocess.run(["cc", "-o", tmp_path / "odd", source], check=True)
    done, log = recorder.run("-q", "-s", "scheduler", "--", tmp_path / "odd")
    assert done.code == 0, done.err
    shown = subprocess.run(
        [sys.executable, "-m", "klogger.cli.report", log], capture_output=True, timeout=120,
        check=False, env={**os.environ, "KLOGGER": str(klogger)},
    )  # fmt: skip
    assert shown.returncode == 0, shown.stderr
    assert "\ufffd".encode() in shown.stdout
    assert b"\x1b" not in shown.stdout
