# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Whatever is wrong: one clear message with a remedy, exit code 2, and nothing is left behind."""

import os
import re
import signal
import subprocess

import pytest
from conftest import as_nobody

BAD = {
    # name: (schema text, what the message must say)
    "no_tracepoint": (
        (
            "event A { int pid }\nprobe tracepoint sched_swich(bool preempt, struct task_struct"
            " *prev) { klogger(A, prev->pid); }"
        ),
        ["sched_swich", "sched_switch"],
    ),
    "wrong_prototype": (
        (
            "event A { int pid }\nprobe tracepoint sched_switch(struct task_struct *prev, int next)"
            " { klogger(A, prev->pid); }"
        ),
        [
            "sched_switch(struct task_struct *, int)",
            "sched_switch(bool, struct task_struct *, struct task_struct *",
        ],
    ),
    "duplicate_event": ("event A { int pid }\nevent A { int tgid }", ["A"]),
    "reserved_in_c": ("event A { int while }", ["while"]),
    "reserved_in_sql": ("event select { int pid }", ["select"]),
    "too_large": ("event A { u64 values[1000] }", ["4096"]),
    "unknown_event": (
        (
            "event APPLE { int pid }\nprobe tracepoint sched_process_exit(struct task_struct *p) "
            "{ klogger(APLE, p->pid); }"
        ),
        ["APLE", "APPLE"],
    ),
    "c_error": (
        (
            "event A { int pid }\nprobe tracepoint sched_process_exit(struct task_struct *p) {\n"
            "    klogger(A, p->no_such_member);\n}"
        ),
        ["no_such_member", ":3"],
    ),
}


@pytest.fixture
def refused(recorder, clean_kernel):
    """Runs klogger, which must refuse, and leave neither a log nor a temporary file."""

    def run(*words, says=(), prefix=(), env=None):
        temporary = recorder.dir / "tmp"
        temporary.mkdir(exist_ok=True)
        before = set(recorder.dir.iterdir())
        process = subprocess.Popen(
            [*map(str, prefix), recorder.klogger, *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=recorder.dir,
            start_new_session=True,
            env={**(os.environ if env is None else env), "TMPDIR": str(temporary)},
        )
        recorder.running.append(process)
        process.wait(30)
        try:
            # A process that it left behind would keep the pipes open.
            stdout, stderr = process.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            pytest.fail("it ended, and left a process behind")
        assert process.returncode == 2, (process.returncode, stdout, stderr)
        assert "panicked" not in stderr
        assert stderr.strip()
        for word in says:
            assert re.search(word if isinstance(word, re.Pattern) else re.escape(word), stderr), (
                stderr
            )
        assert set(recorder.dir.iterdir()) == before, "something was left behind"
        assert list(temporary.iterdir()) == []
        return stderr

    return run


def one_message(text):
    return len(re.findall(r"^klogger: ", text, re.M)) == 1


@pytest.mark.parametrize("name", BAD)
def test_bad_schema(refused, recorder, name):
    text, says = BAD[name]
    file = recorder.dir / f"{name}.klogger"
    file.write_text(text + "\n")
    error = refused("record", "-s", file, "-o", recorder.dir / "x.klog", "--", "true", says=says)
    assert f"{name}.klogger" in error or name == "too_large"


def test_unknown_schema(refused):
    error = refused(
        "record", "-s", "schedular", "-o", "x.klog", "--", "true", says=["schedular", "scheduler"]
    )
    assert one_message(error)


def test_two_schemata_that_give_one_name_other_texts(refused, recorder):
    """In SQL and in the log it is one function: of one of them the texts would be wrong."""
    probe = "probe tracepoint sched_process_exit(struct task_struct *p) {{ klogger({}, p->pid); }}"
    for schema, name, texts in ("one", "kind", '1 "x"'), ("two", "Kind", '1 "y"'):
        event = schema.upper()
        (recorder.dir / f"{schema}.klogger").write_text(
            f"schema {schema}\nenum {name} {{ {texts} }}\nevent {event} {{ int a as {name} }}\n"
            + probe.format(event)
        )
    refused(
        "record", "-s", "one.klogger", "-s", "two.klogger", "--", "true",
        says=["'one' and 'two' both declare 'Kind', with other texts", "rename it"],
    )  # fmt: skip
    same = (recorder.dir / "one.klogger").read_text().replace("ONE", "TWO")
    (recorder.dir / "two.klogger").write_text(same.replace("schema one", "schema two"))
    done, _ = recorder.run("-s", "one.klogger", "-s", "two.klogger", "--", "true")
    assert done.code == 0, done.err


def test_no_schema_file(refused):
    refused(
        "record", "-s", "./no/such.klogger", "-o", "x.klog", "--", "true", says=["no/such.klogger"]
    )


def test_unknown_option_is_refused(refused):
    refused("record", "--no-such-option")


@pytest.mark.parametrize("size", ["0", "1000T", "-1", "many"])
def test_buffer_size(refused, size):
    refused(
        "record",
        "-s",
        "scheduler",
        f"--buffer-size={size}",
        "-o",
        "x.klog",
        "--",
        "true",
        says=["buffer-size"],
    )


def test_command_not_found(refused):
    refused(
        "record",
        "-s",
        "scheduler",
        "-o",
        "x.klog",
        "--",
        "/no/such/program",
        says=["/no/such/program"],
    )


def test_no_such_process(refused):
    refused("record", "-s", "scheduler", "-o", "x.klog", "-p", "4194300", says=["4194300"])


def test_no_such_folder(refused):
    refused("record", "-s", "scheduler", "-o", "no/such/x.klog", "--", "true", says=["no/such"])


def test_not_root(public_klogger):
    done = as_nobody(public_klogger, "record", "-s", "scheduler", "-o", "/dev/null", "--", "true")
    assert done.code == 2
    assert re.search("root|CAP_BPF|capabilit", done.err), done.err
    assert one_message(done.err)


def test_root_without_a_capability(refused):
    error = refused(
        *("record", "-s", "scheduler", "-o", "x.klog", "--", "true"),
        prefix=["setpriv", "--bounding-set=-sys_admin,-bpf,-perfmon"],
        says=["CAP_"],
    )
    assert one_message(error)


def test_no_clang(refused, recorder):
    file = recorder.dir / "mine.klogger"
    file.write_text(
        "event A { int pid }\nprobe tracepoint sched_process_exit(struct task_struct *p) {"
        " klogger(A, p->pid); }"
    )
    error = refused(
        *("record", "-s", file, "-o", "x.klog", "--", "/bin/true"),
        env={"PATH": "/nonexistent"},
        says=["clang"],
    )
    assert one_message(error)


def test_no_btf(refused, recorder):
    hidden = 'mount -t tmpfs none /sys/kernel/btf && exec "$@"'
    error = refused(
        *("record", "-s", "scheduler", "-o", "x.klog", "--", "true"),
        prefix=["unshare", "-m", "sh", "-c", hidden, "sh"],
        says=["BTF"],
    )
    assert one_message(error)


@pytest.fixture
def a_log(recorder, workloads):
    done, path = recorder.run("-s", "scheduler", "--", workloads / "pingpong", 2000, "processes", 0)
    assert done.code == 0, done.err
    return path


READERS = [["info"], ["cat"], ["cat", "--format", "json"], ["export", "--to", "json", "-o", "out"]]


@pytest.mark.parametrize("words", READERS, ids=lambda words: "-".join(words[:1] + words[2:3]))
@pytest.mark.parametrize("what", ["text", "empty", "missing", "folder"])
def test_not_a_log(refused, recorder, words, what):
    path = recorder.dir / "x.klog"
    if what == "text":
        path.write_text("This is a text about logs.\n" * 100)
    elif what == "empty":
        path.write_bytes(b"")
    elif what == "folder":
        path.mkdir()
    error = refused(*words, path, says=["x.klog"])
    assert one_message(error)


@pytest.mark.full("takes more than 3 s")
def test_newer_version(refused, a_log):
    data = bytearray(a_log.read_bytes())
    data[7] += 1
    # The preamble stands in a log twice, and the copy at the end still says the old version.
    a_log.write_bytes(data[: len(data) // 2])
    assert one_message(refused("cat", a_log, says=[re.compile("newer|version")]))


def test_corrupt_block(recorder, a_log):
    """The rest is read; what is missing is said."""
    before = recorder.command("cat", a_log).out.count("\n")
    data = bytearray(a_log.read_bytes())
    middle = data.index(b"\xb5KLB", len(data) // 3)
    data[middle + 200] ^= 0x40
    a_log.write_bytes(data)
    info = recorder.command("info", a_log)
    assert info.code == 0
    assert "corrupt" in info.out + info.err or "damage" in info.out + info.err
    cat = recorder.command("cat", a_log)
    assert cat.code == 0
    assert cat.err.strip()
    assert 0 < cat.out.count("\n") < before


def test_unknown_event(refused, a_log):
    assert one_message(refused("cat", "--event", "SCHEDUOT", a_log, says=["SCHEDUOT", "SCHEDOUT"]))


def test_unknown_field(refused, a_log):
    assert one_message(refused("cat", "--where", "pidd == 1", a_log, says=["pidd", "pid"]))


def test_unwritable_cache(recorder, a_log):
    """Where the tables cannot stand beside the log, the message says what to do."""
    script = f'mount --bind -o ro {recorder.dir} {recorder.dir} && exec "$@"'
    done = subprocess.run(
        [
            "unshare",
            "-m",
            "sh",
            "-c",
            script,
            "sh",
            recorder.klogger,
            "export",
            "--to",
            "parquet",
            a_log,
        ],
        capture_output=True,
        check=False,
        text=True,
        cwd="/",
    )
    assert done.returncode == 2, done.stderr
    assert one_message(done.stderr), done.stderr
    assert not (a_log.parent / (a_log.name + "-parquet")).exists()


def test_a_time_namespace_with_other_clocks(refused):
    inside = ("unshare", "-T", "--monotonic", "100000", "--boottime", "100000", "--fork")
    words = ("record", "-s", "scheduler", "-o", "x.klog", "--", "true")
    refused(*words, prefix=inside, says=["time namespace", "100000 s off", "outside of it"])


def test_a_time_that_no_clock_has(refused):
    words = ("record", "-s", "scheduler", "-a", "--dir", "x", "--segment")
    refused(*words, "10000000000000000000s", says=["an age of"])


def test_a_parameter_of_a_qualifier_alone(refused, recorder):
    file = recorder.dir / "const.klogger"
    file.write_text("event A { int pid }\nprobe function vfs_read(const s) { klogger(A, 1); }\n")
    refused("record", "-s", file, "-a", "-o", "x.klog", says=["vfs_read"])


@pytest.mark.parametrize("line", ["#!/no/such/interpreter", "#!/bin/sh\r"])
def test_a_script_whose_interpreter_is_not_there(refused, recorder, line):
    script = recorder.dir / "script"
    script.write_text(f"{line}\ntrue\n")
    script.chmod(0o755)
    named = repr(line[2:]).strip("'")
    words = ("record", "-s", "lifecycle", "-o", "x.klog", "--", "./script")
    assert "no such command" not in refused(*words, says=[f'interpreter "{named}" is not there'])


def test_root_of_a_user_namespace(refused):
    words = ("record", "-s", "lifecycle", "-o", "x.klog", "--", "true")
    refused(*words, prefix=("unshare", "-r"), says=["user namespace", "--engine user"])
