# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`klogger record -o -`: a log through a pipe. It is a whole log for every command, `klogger cat -`
prints it as it comes, and a reader that is slow, or gone, loses nothing silently.
"""

import json
import os
import pty
import re
import signal
import subprocess
from pathlib import Path

import pytest
from following import FLOOD, PATIENCE, Gate, end, events, finish, started, wait_for

HITS = ("FLOOD", "FLOOD_WIDE")


@pytest.fixture
def start(klogger, tmp_path):
    """Starts klogger in a folder of its own."""
    running = []

    def run(*words, **more) -> subprocess.Popen:
        running.append(started(klogger, *words, cwd=tmp_path, **more))
        return running[-1]

    yield run
    end(*running)


@pytest.fixture
def piped(start):
    """`klogger record WORDS | klogger cat - OPTIONS`: both."""

    def run(*words, options=(), **more):
        record = start("record", "-s", FLOOD, "-o", "-", *words, **more)
        reader = start("cat", "-", *options, stdin=record.stdout)
        record.stdout.close()
        return record, reader

    return run


def ended(record) -> tuple[int, str]:
    """Its exit code and what it said; nobody reads its standard output here."""
    said = record.stderr.read().decode()
    return record.wait(timeout=PATIENCE), said


def test_events_come_through_a_pipe(piped, workloads, clean_kernel):
    hits = 5000
    record, reader = piped("--", workloads / "steady", hits, 5000, options=("--format", "json"))
    code, out, err = finish(reader)
    assert (code, err) == (0, "")
    recorded, said = ended(record)
    assert recorded == 0
    # The command's own output, and the summary, are on standard error.
    assert f'{{"hits": {hits}}}' in said
    assert "in standard output; nothing lost." in said
    rows = events(out)
    assert sum(row["event"] == "FLOOD" for row in rows) >= hits
    assert [row["time"] for row in rows] == sorted(row["time"] for row in rows)


@pytest.mark.full("others of this file are in the gate")
def test_they_come_while_the_command_runs(piped, workloads, tmp_path):
    gate = Gate(tmp_path)
    script = f"{workloads}/steady 3 1000; read line < {gate.path}"
    record, reader = piped("-q", "--", "sh", "-c", script, options=("-e", "FLOOD"))
    assert all(b" FLOOD " in reader.stdout.readline() for _ in range(3))
    assert record.poll() is None
    gate.open()
    code, _, err = finish(reader)
    assert (code, err, ended(record)) == (0, "", (0, '{"hits": 3}\n'))


@pytest.fixture
def streamed(start, workloads, tmp_path):
    """A log that has gone through a pipe into a file."""

    def make(*options):
        log = tmp_path / "streamed.klog"
        words = (
            "record",
            "-q",
            "-s",
            FLOOD,
            *options,
            "-o",
            "-",
            "--",
            workloads / "steady",
            2000,
            4000,
        )
        record = start(*words)
        with log.open("wb") as file:
            subprocess.run(["cat"], stdin=record.stdout, stdout=file, check=True, timeout=PATIENCE)
        assert ended(record)[0] == 0
        return log

    return make


@pytest.mark.full("others of this file are in the gate")
@pytest.mark.parametrize("options", [(), ("--compress",)], ids=["plain", "compressed"])
def test_the_log_is_whole_for_every_command(streamed, recorder, options):
    log = streamed(*options)
    info = json.loads(recorder.command("info", log, "--format", "json").out)
    assert (info["complete"], info["sound"], info["lost"], info["damage"]) == (True, True, 0, [])
    rows = events(recorder.command("cat", log, "--format", "json").out.encode())
    assert len(rows) == info["logged"]
    assert sum(row["event"] == "FLOOD" for row in rows) >= 2000
    sql = recorder.command("sql", log, "SELECT count(*) AS n FROM flood", "--format", "json")
    counted = sum(row["event"] == "FLOOD" for row in rows)
    assert sql.code == 0 and str(counted) in sql.out, sql
    assert recorder.command("report", log).code == 0
    # The same through a pipe once more, into commands that read a log in any order.
    with log.open("rb") as file:
        process = subprocess.Popen(["cat"], stdin=file, stdout=subprocess.PIPE)
        again = recorder.command("info", "-", "--format", "json", stdin=process.stdout)
        process.stdout.close()
        process.wait()
    assert json.loads(again.out) | {"file": str(log)} == info
    with log.open("rb") as file:
        read = recorder.command("cat", "-", "--format", "json", stdin=file)
    assert events(read.out.encode()) == rows


@pytest.mark.parametrize("where", ["a file", "standard output of another name"])
def test_into_a_file_of_the_shell(start, recorder, workloads, tmp_path, where):
    log = tmp_path / "redirected.klog"
    name = "-" if where == "a file" else "/dev/stdout"
    with log.open("wb") as file:
        words = ("record", "-q", "-s", FLOOD, "-o", name, "--", workloads / "steady", 10, 1000)
        record = start(*words, stdout=file)
        _, said = ended(record)
    assert record.returncode == 0 and said == '{"hits": 10}\n'
    info = json.loads(recorder.command("info", log, "--format", "json").out)
    assert (info["complete"], info["sound"]) == (True, True)
    # Nothing is appended to what is there.
    before = log.read_bytes()
    with log.open("ab") as file:
        record = start("record", "-s", FLOOD, "-o", "-", "--", "true", stdout=file)
        code, said = ended(record)
    assert code == 2 and "it is a file that is not empty" in said, said
    assert log.read_bytes() == before


def test_a_terminal_is_refused(start):
    ours, theirs = pty.openpty()
    record = start("record", "-s", FLOOD, "-o", "-", "--", "true", stdout=theirs)
    code, said = ended(record)
    assert code == 2
    assert said.startswith("klogger: cannot write the log to standard output: it is a terminal"), (
        said
    )
    os.close(ours)
    os.close(theirs)


@pytest.mark.full("others of this file are in the gate")
def test_a_reader_that_is_gone_ends_the_recording_and_not_the_command(start, workloads, tmp_path):
    gate, done = Gate(tmp_path), tmp_path / "done"
    script = f"read line < {gate.path}; {workloads}/steady 20000 50000 > {done}"
    words = ("--messages", "json", "-s", FLOOD, "-o", "-", "--", "sh", "-c", script)
    record = start("record", *words)
    assert record.stdout.read(100)
    # Before that, the command would not be started at all.
    while json.loads(record.stderr.readline())["message"] != "started":
        pass
    record.stdout.close()
    gate.open()
    code, said = ended(record)
    assert code == 2
    assert "the log on standard output is not complete: its reader has ended" in said, said
    assert done.read_text() == '{"hits": 20000}\n'


@pytest.mark.full("others of this file are in the gate")
def test_a_slow_reader_loses_nothing_silently(start, recorder, workloads, tmp_path):
    """It reads nothing until the flood is over. What did not fit is counted."""
    hits, log = 2_000_000, tmp_path / "slow.klog"
    words = ("-s", FLOOD, "--buffer-size", "64K", "-o", "-", "--", workloads / "flood", hits, 0)
    record = start("record", "-q", *words)
    report = record.stderr.readline()
    while not report.startswith(b"{"):
        assert report, "the flood has no report"
        report = record.stderr.readline()
    with log.open("wb") as file:
        subprocess.run(["cat"], stdin=record.stdout, stdout=file, check=True, timeout=PATIENCE)
    assert ended(record)[0] == 0
    info = json.loads(recorder.command("info", log, "--format", "json").out)
    assert info["complete"] and info["sound"]
    assert info["lost"] > 0, "the pipe held everything"
    counts = {event["name"]: event for event in info["events"]}
    both = sum(counts[name]["logged"] + counts[name]["lost"] for name in HITS)
    # Each hit has two events. Another rename is that of the command by its exec.
    assert 2 * hits <= both <= 2 * hits + 4


def is_pending(pid: int, number: int) -> bool:
    (mask,) = re.findall(r"^ShdPnd:\s+(\w+)$", Path(f"/proc/{pid}/status").read_text(), re.M)
    return bool(int(mask, 16) >> (number - 1) & 1)


def waits_for_a_lock(pid: int) -> bool:
    """Its first thread; 202 is futex."""
    return Path(f"/proc/{pid}/task/{pid}/syscall").read_text().startswith("202 ")


@pytest.mark.full("others of this file are in the gate")
def test_a_second_signal_ends_it_whatever_its_threads_wait_for(start, workloads, clean_kernel):
    """Nobody reads its log, for which the actions of a trigger wait as well."""
    trigger = 'FLOOD: mark "x", at most 1000 per second'
    flood = [workloads / "flood", 1_000_000, -1]
    words = ("--messages", "json", "-s", FLOOD, "--trigger", trigger, "-o", "-", "--", *flood)
    record = start("record", *words)
    # Until then there is nothing to complete, and one signal ends it.
    while json.loads(record.stderr.readline())["message"] != "started":
        pass
    wait_for(lambda: waits_for_a_lock(record.pid), record)
    record.terminate()
    wait_for(lambda: not is_pending(record.pid, signal.SIGTERM), record)
    record.terminate()
    assert record.wait(timeout=PATIENCE) == -signal.SIGTERM


@pytest.mark.full("others of this file are in the gate")
def test_its_snapshots_have_the_name_of_the_command(start, recorder, tmp_path):
    gate = Gate(tmp_path)
    words = ("-s", FLOOD, "--snapshots", "-o", "-", "--", "sh", "-c", f"read line < {gate.path}")
    with (tmp_path / "whole.klog").open("wb") as log:
        record = start("record", "--messages", "json", *words, stdout=log)
    while json.loads(record.stderr.readline())["message"] != "started":
        pass
    done = recorder.command("snapshot", "--recorder", record.pid, "--format", "json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["file"] == str(tmp_path / "flood.snapshot-001.klog")
    gate.open()
    assert ended(record)[0] == 0


@pytest.mark.full("others of this file are in the gate")
def test_a_stream_that_is_cut_off(streamed, start, recorder):
    log = streamed()
    whole = log.read_bytes()
    for part in (0.5, 0.9):
        reader = start("cat", "-", "--format", "json", stdin=subprocess.PIPE)
        reader.stdin.write(whole[: int(len(whole) * part)])
        reader.stdin.close()
        reader.stdin = None
        code, out, err = finish(reader)
        assert code == 0
        assert "ledger and index are missing" in err, err
        rows = events(out)
        every = events(recorder.command("cat", log, "--format", "json").out.encode())
        assert 0 < len(rows) < len(every)
        assert all(row in every for row in rows[:50])


@pytest.mark.parametrize("what", [b"", b"text\n" * 100, b"\x89"], ids=["nothing", "text", "begun"])
@pytest.mark.parametrize("command", ["cat", "info"])
def test_what_is_no_log(start, command, what):
    reader = start(command, "-", stdin=subprocess.PIPE)
    reader.stdin.write(what)
    reader.stdin.close()
    reader.stdin = None
    code, out, err = finish(reader)
    assert (code, out) == (2, b"")
    assert err.startswith("klogger: ") and len(err.splitlines()) == 2, err


def test_through_a_compressor(piped, start, workloads, tmp_path):
    packed = tmp_path / "log.zst"
    words = ("-s", FLOOD, "-o", "-", "--", workloads / "steady", 1000, 5000)
    record = start("record", "-q", *words)
    with packed.open("wb") as file:
        subprocess.run(["gzip"], stdin=record.stdout, stdout=file, check=True, timeout=PATIENCE)
    assert ended(record)[0] == 0
    unpacked = subprocess.Popen(["gzip", "-dc", packed], stdout=subprocess.PIPE)
    reader = start("cat", "-", "-e", "FLOOD", stdin=unpacked.stdout)
    unpacked.stdout.close()
    code, out, err = finish(reader)
    unpacked.wait()
    assert (code, err) == (0, "")
    assert len(out.splitlines()) >= 1000


@pytest.mark.full("others of this file are in the gate")
def test_interrupt_ends_both_with_a_whole_log(klogger, workloads, tmp_path):
    """As Ctrl-C on a terminal does, which reaches the whole pipeline."""
    kept = tmp_path / "kept.klog"
    line = (
        f"{klogger} record -s {FLOOD} -o - -- sleep {PATIENCE} | tee {kept} | "
        f"{klogger} cat - --format json > {tmp_path}/lines; echo $? > {tmp_path}/code"
    )
    # tee is part of the test, and goes on reading; the shell waits for all.
    script = f"trap : INT; {line.replace('tee', 'tee -i')}"
    shell = subprocess.Popen(
        ["sh", "-c", script], stderr=subprocess.PIPE, start_new_session=True, text=True
    )
    try:
        lines = tmp_path / "lines"
        wait_for(lambda: lines.exists() and b"PROCESS_EXEC" in lines.read_bytes(), shell)
        os.killpg(shell.pid, signal.SIGINT)
        _, said = shell.communicate(timeout=PATIENCE)
    finally:
        end(shell)
    assert (tmp_path / "code").read_text() == "130\n", said
    assert "not complete" not in said, said
    assert "nothing lost" in said, said
    assert b"KLOGGER_FINISH" in (tmp_path / "lines").read_bytes()
