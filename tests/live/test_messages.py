# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What `--messages json` tells a program (docs/messages.md) is what the log says afterwards."""

import json

from oracles import Log


def objects(err):
    return [json.loads(line) for line in err.splitlines()]


def test_messages_and_log_agree(recorder):
    done, path = recorder.run(
        "-s", "scheduler", "--messages", "json", "--", "sh", "-c", "sleep 1; exit 4"
    )
    assert done.code == 4
    messages = objects(done.err)
    (started,) = [m for m in messages if m["message"] == "started"]
    log = Log(recorder.klogger, path)
    recorder_of_log = log.meta["preamble"]["recorder"]
    assert (started["log"], started["pid"]) == (str(path), recorder_of_log["pid"])
    summary = messages[-1]
    assert (summary["message"], summary["log"]) == ("summary", str(path))
    assert summary["bytes"] == path.stat().st_size
    info = recorder.command("info", "--format", "json", path)
    assert info.code == 0, info.err
    info = json.loads(info.out)
    assert (summary["events"], summary["lost"]) == (info["logged"], info["lost"])
    assert set(summary["ledger"]) <= {entry["key"] for entry in info["ledger"]}
    progress = [m["events"] for m in messages if m["message"] == "progress"]
    assert progress == sorted(progress) and progress[-1] <= summary["events"]


# Whether its parent listens, by the shell alone: the first that it does.
LISTENS = """while read -r line; do
    case $line in *@klogger-recording-$PPID) exit 5 ;; esac
done < /proc/net/unix"""


def test_the_command_can_mark_at_once(recorder):
    for _ in range(3):
        done, _ = recorder.run("-q", "-s", "scheduler", "--", "sh", "-c", LISTENS)
        assert done.code == 5, done
    done, path = recorder.run("-q", "-s", "scheduler", "--", recorder.klogger, "mark", "7", "begun")
    assert done.code == 0, done
    assert Log(recorder.klogger, path).one("SELECT text FROM mark WHERE number = 7") == "begun"


def test_who_waits_for_the_start_can_mark_at_once(recorder):
    path = recorder.path()
    process = recorder.start("-s", "scheduler", "--messages", "json", "-a", out=path)
    while json.loads(process.stderr.readline())["message"] != "started":
        pass
    mark = recorder.command("mark", "7", "begun", "--recorder", process.pid)
    assert mark.code == 0, mark.err
    process.terminate()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    marks = recorder.command("cat", path, "-e", "MARK", "--format", "json")
    assert [json.loads(line)["number"] for line in marks.out.splitlines()] == [7]


def test_a_warning_is_shown_once(recorder):
    schema = recorder.dir / "idle.klogger"
    schema.write_text(
        "schema idle\nevent A { int n }\nevent UNUSED { int n }\n"
        "probe timer 9Hz() { klogger(A, 1); }\n"
    )
    done, _ = recorder.run("-s", schema, "--", "true")
    assert done.code == 0, done.err
    assert done.err.count("no probe logs event UNUSED") == 1, done.err
