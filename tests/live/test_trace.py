# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`klogger trace`: each planted call is a line while the command runs, in the order of time, and
the ends of commands, readers and terminals are clean.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

SCHEMATA = Path(__file__).resolve().parents[2] / "schemata"
FILES = SCHEMATA / "files"
# `0.001234 program[tid] call(...) = result  <12 us>`
LINE = re.compile(r"^ *([\d.]+) (\S+)\[(\d+)\] (\w+)\((.*)\) = (-?\w+)(.*)  <[\d.]+ \ws?>$")
SECONDS = 60


@pytest.fixture
def trace(recorder):
    """Starts `klogger trace` in a group of its own; what still runs at the end is ended."""

    def start(*words, **more) -> subprocess.Popen:
        streams = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
        streams |= {"stdin": subprocess.DEVNULL} | more
        process = subprocess.Popen(
            [recorder.klogger, "trace", *map(str, words)],
            text=True, cwd=recorder.dir, start_new_session=True,
            **streams,
        )  # fmt: skip
        recorder.running.append(process)
        return process

    return start


def run(process) -> tuple[str, str]:
    return process.communicate(timeout=2 * SECONDS)


def parsed(text: str) -> list:
    """The lines of calls; others are of klogger."""
    return [found.groups() for found in map(LINE.match, text.splitlines()) if found]


def counted(lines, program) -> Counter:
    """(call, error or none): times."""
    calls = ((call, result) for _, name, _, call, _, result, _ in lines if name == program)
    return Counter((call, result[1:] if result.startswith("-E") else "") for call, result in calls)


@pytest.fixture
def planted(workloads, tmp_path):
    folder = tmp_path / "planted"
    folder.mkdir()
    return [workloads / "planted_files", folder]


def strace_calls(command, folder: Path) -> Counter:
    """The same of strace."""
    shutil.rmtree(command[1])
    command[1].mkdir()
    said = folder / "strace"
    words = ["strace", "-f", "-o", said, *command]
    subprocess.run(words, check=True, capture_output=True, timeout=SECONDS)
    line = re.compile(r"^\d+ +(\w+)\(.* = (?:-?\w+)(?: (E\w+))?", re.M)
    return Counter((call, error or "") for call, error in line.findall(said.read_text()))


@pytest.mark.full("takes more than 3 s")
@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not here: scripts/setup test")
def test_each_planted_call_is_a_line_as_strace_has_it(trace, planted, tmp_path, clean_kernel):
    lines = tmp_path / "lines"
    process = trace("-s", FILES, "-o", lines, "--", *planted)
    _, err = run(process)
    assert (process.returncode, err) == (0, "")
    found = parsed(lines.read_text())
    # Which table of descriptors a thread has, strace does not say.
    calls = [line for line in lines.read_text().splitlines() if " has descriptors " not in line]
    assert len(found) == len(calls)
    ours = counted(found, "planted_files")
    strace = strace_calls(planted, tmp_path)
    # Of mmap only those of files are logged. The call that becomes the program is of klogger.
    compared = {key for key in ours if key[0] not in {"mmap", "execve"}}
    assert {("openat", "ENOENT"), ("read", ""), ("close", "")} <= compared
    assert {key: ours[key] for key in compared} == {key: strace[key] for key in compared}
    times = [float(line[0]) for line in found]
    assert times == sorted(times)


@pytest.mark.full("others of this file are in the gate")
def test_lines_name_files(trace, tmp_path):
    file = tmp_path / "a file"
    file.write_text("text\n")
    process = trace("-s", FILES, "--", "cat", file, tmp_path / "none")
    out, err = run(process)
    assert (process.returncode, out) == (1, "text\n")
    lines = [line for line in parsed(err) if line[1] == "cat"]
    opened = [line for line in lines if line[3] == "openat" and line[4].startswith(f'"{file}"')]
    assert len(opened) == 1
    descriptor = opened[0][5]
    calls = [(call, result) for _, _, _, call, what, result, _ in lines
             if what == f'{descriptor} "{file}"']  # fmt: skip
    assert calls[:2] == [("read", "5"), ("read", "0")]
    assert any(line[4].startswith(f'"{tmp_path}/none"') and line[5] == "-ENOENT" for line in lines)
    assert "\x1b" not in err


@pytest.mark.full("others of this file are in the gate")
def test_lines_come_while_the_command_runs(trace, tmp_path):
    """The command ends when its line has been read."""
    go = tmp_path / "go"
    os.mkfifo(go)
    script = f": < {tmp_path}/first; read line < {go}"
    (tmp_path / "first").write_text("")
    process = trace("-s", FILES, "--", "sh", "-c", script)
    for line in process.stderr:
        if f'"{tmp_path}/first"' in line:
            break
    else:
        pytest.fail("no line")
    assert process.poll() is None
    go.write_text("\n")
    _, err = run(process)
    assert process.returncode == 0
    # The pipe is its standard input.
    read = [line for line in parsed(err) if line[3] == "read" and line[4].startswith("0")]
    assert "1" in [line[5] for line in read], err


def test_only_these_calls(trace, tmp_path):
    process = trace("-s", FILES, "-e", "trace=openat,read", "--", "cat", "/dev/null")
    _, err = run(process)
    calls = {line[3] for line in parsed(err)}
    assert calls == {"openat", "read"}


def test_an_event_with_an_empty_line_is_printed_if_it_is_asked_for(trace):
    command = ["--", "sh", "-c", "true; ls / >/dev/null"]
    _, err = run(trace("-s", FILES, *command))
    assert "openat(" in err and "DESCRIPTORS" not in err and " descriptors" not in err, err
    _, err = run(trace("-s", FILES, "-e", "DESCRIPTORS", *command))
    assert err.count(" DESCRIPTORS id=0x") >= 3, err


def test_json_is_as_the_log_has_it(trace, recorder, tmp_path):
    lines, log = tmp_path / "lines", tmp_path / "a.klog"
    process = trace("-s", FILES, "--format", "json", "-o", lines, "--log", log, "--", "true")
    _, err = run(process)
    assert process.returncode == 0
    assert str(log) in err
    live = [json.loads(line) for line in lines.read_text().splitlines()]
    done = recorder.command("cat", log, "--format", "json")
    wanted = {"LOOK", "READ", "NAMED", "CLOSED", "PROCESS_EXEC"}
    kept = [json.loads(line) for line in done.out.splitlines()]
    of = [[one for one in all if one["event"] in wanted] for all in (live, kept)]
    assert len(of[0]) > 10
    assert of[0] == of[1]


@pytest.mark.full("others of this file are in the gate")
def test_a_slow_reader_misses_nothing(trace, tmp_path):
    """The pipe is full while the command runs to its end; then all lines come."""
    done, file = tmp_path / "done", tmp_path / "file"
    file.write_text("")
    script = f"n=0; while [ $n -lt 5000 ]; do : < {file}; n=$((n + 1)); done; : > {done}"
    process = trace("-s", FILES, "-e", "openat", "--", "sh", "-c", script)
    deadline = time.monotonic() + SECONDS
    while not done.exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    _, err = run(process)
    assert process.returncode == 0
    lines = [line for line in parsed(err) if line[4] == f'"{file}"']
    assert len(lines) == 5000


@pytest.mark.full("others of this file are in the gate")
def test_nobody_reads_the_lines_any_more(trace, tmp_path, clean_kernel):
    """The command runs on to its end, and its exit code is passed on."""
    go = tmp_path / "go"
    script = f"until [ -e {go} ]; do : < /dev/null; sleep 0.01; done; exit 7"
    process = trace("-s", FILES, "--", "sh", "-c", script)
    assert process.stderr.readline()
    process.stderr.close()
    time.sleep(0.5)
    go.write_text("")
    assert process.wait(SECONDS) == 7


@pytest.mark.full("others of this file are in the gate")
def test_ctrl_c(trace, clean_kernel):
    """Both get the signal, as from a terminal."""
    script = "trap 'exit 5' INT; while :; do sleep 0.05; done"
    process = trace("-s", FILES, "--", "sh", "-c", script)
    assert process.stderr.readline()
    os.killpg(process.pid, signal.SIGINT)
    run(process)
    assert process.returncode == 5


@pytest.mark.full("others of this file are in the gate")
def test_a_full_disk(trace, tmp_path):
    process = trace("-s", FILES, "-o", "/dev/full", "--", "sh", "-c", "exit 3")
    _, err = run(process)
    assert process.returncode == 2
    assert "cannot write /dev/full: No space left on device" in err


@pytest.mark.full("others of this file are in the gate")
def test_summary(trace, planted):
    process = trace("-s", FILES, "-c", "--", *planted)
    out, err = run(process)
    assert process.returncode == 0, err
    assert "openat" in out and not parsed(err)


@pytest.mark.full("others of this file are in the gate")
def test_schemata_without_lines(trace):
    process = trace("-e", "sched_process_exec", "--color", "always", "--", "true")
    _, err = run(process)
    assert process.returncode == 0
    assert re.search(r"sched_process_exec\S* .*filename=\S*true", err), err
    assert "\x1b[" in err


def test_a_pipe_has_its_name(recorder):
    read, write = os.pipe()
    name = os.readlink(f"/proc/self/fd/{write}")
    log = recorder.dir / "a.klog"
    command = [recorder.klogger, "record", "-q", "-s", "files", "-o", log, "--", "true"]
    subprocess.run(command, stdin=read, check=True, timeout=SECONDS)
    shown = recorder.command("cat", log, "--format", "json").out.splitlines()
    events = [json.loads(line) for line in shown if '"event":"HELD"' in line]
    assert name in {one["path"] for one in events}, events
    os.close(read), os.close(write)


def test_a_line_of_a_pipe_names_it(trace):
    process = trace("-s", FILES, "-e", "write", "--", "sh", "-c", "echo text")
    name = os.readlink(f"/proc/self/fd/{process.stdout.fileno()}")
    _, err = run(process)
    (line,) = [line for line in parsed(err) if line[1] == "sh"]
    assert line[3:6] == ("write", f'1 "{name}"', "5")


def test_a_thread_that_was_there_has_its_name(trace):
    """The one that wakes the program is not recorded, and has no event of its own."""
    process = trace("-s", "scheduler", "-e", "TRY_TO_WAKEUP", "--", "head", "-n", "3",
                    stdin=subprocess.PIPE)  # fmt: skip
    process.stderr.readline()
    deadline = time.monotonic() + SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            process.stdin.write("line\n")
            process.stdin.flush()
        except BrokenPipeError:
            break
        time.sleep(0.01)
    err = process.stderr.read()
    own = Path("/proc/self/comm").read_text().strip()
    assert f"waker={own}[{os.getpid()}]" in err, err
    assert not re.search(r"waker=[1-9]", err), err


TIMED = """
import signal, time
# Blocked, so that it does not come before it is waited for.
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
signal.setitimer(signal.ITIMER_REAL, 0.001)
signal.sigwait({signal.SIGALRM})
"""


def test_a_timer_is_the_sender_of_its_signal(trace):
    process = trace("-s", "lifecycle", "-e", "SIGNALLED", "--", sys.executable, "-c", TIMED)
    _, err = run(process)
    assert process.returncode == 0
    (line,) = [line for line in err.splitlines() if "SIGALRM" in line]
    assert line.endswith("was sent SIGALRM by the timer"), err


def test_exec_has_its_arguments(trace):
    long = "x" * 1200
    script = f"/bin/true --one 'two words'; /bin/true {long}"
    process = trace("-s", "lifecycle", "-e", "RAN", "--", "sh", "-c", script)
    _, err = run(process)
    assert 'runs "/bin/true": "/bin/true --one two words"' in err, err
    cut = ("/bin/true " + long)[:1000]
    assert f'runs "/bin/true": "{cut}"...' in err, err


def test_calls_of_traps_have_names(trace):
    process = trace("-s", "traps", "--", "true")
    _, err = run(process)
    assert re.search(r"SYS_IN \S*id=exit_group$", err, re.M), err
    assert not re.search(r"id=\d", err)
