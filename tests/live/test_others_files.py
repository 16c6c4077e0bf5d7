# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Folders that other users may write to: what they put there is neither followed, written to,
believed nor removed. Nothing that is rescued is lost if the disk is full.
"""

import os
import re
import shutil
import signal
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import small_disk_at, wait_for

LOGS = Path(__file__).parents[1] / "logs"
SCHEMA = Path(__file__).with_name("numbered.klogger")
NOBODY = 65534
PRECIOUS = "precious"


@pytest.fixture
def shared(tmp_path):
    """A folder as /tmp, beside one of root's that has a file."""
    public, own = tmp_path / "pub", tmp_path / "own"
    public.mkdir()
    public.chmod(0o1777)
    own.mkdir()
    (own / "victim").write_text(PRECIOUS)
    return public, own


def link(path: Path, to: Path) -> Path:
    """A link of another user."""
    path.symlink_to(to)
    os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    return path


def log_in(folder: Path) -> Path:
    return Path(shutil.copy(LOGS / "v4.klog", folder / "a.klog"))


def check_refused(done, what="belongs to another user"):
    assert done.code == 2 and what in done.err, done
    assert "panicked" not in done.err and "help:" in done.err, done.err


@pytest.mark.parametrize("form", ["parquet", "ctf", "lttng", "perfetto", "json", "csv"])
def test_exports_beside_a_log(recorder, shared, form):
    """The default name is predictable; so is that of what is not complete."""
    public, own = shared
    log = log_in(public)
    done = recorder.command("export", log, "--to", form)
    assert done.code == 0, done.err
    made = Path(done.out.strip())
    shutil.rmtree(made) if made.is_dir() else made.unlink()
    link(public / f"{made.name}.part", own / "victim")
    for planted in [own, own / "victim", own / "free"]:
        link(made, planted)
        check_refused(recorder.command("export", log, "--to", form))
        check_refused(recorder.command("export", log, "--to", form, "--force"))
        made.unlink()
    made.mkdir()
    os.chown(made, NOBODY, NOBODY)
    done = recorder.command("export", log, "--to", form, "--force")
    assert done.code == 2, done
    made.rmdir()
    assert recorder.command("export", log, "--to", form).code == 0
    assert (own / "victim").read_text() == PRECIOUS
    assert [path.name for path in own.iterdir()] == ["victim"]


def test_tables_of_another_user_are_not_believed(recorder, shared):
    public, _ = shared
    log = log_in(public)
    assert recorder.command("export", log, "--to", "parquet").code == 0
    tables = public / "a.klog-parquet"
    os.chown(tables, NOBODY, NOBODY)
    check_refused(recorder.command("export", log, "--to", "parquet"))
    os.chown(tables, 0, 0)
    assert recorder.command("export", log, "--to", "parquet").code == 0


def test_exports_at_the_same_time(recorder, tmp_path):
    """Each ends well, and what is there is whole: also after one was killed."""
    log = log_in(tmp_path)
    leftover = tmp_path / ".a.klog-parquet.part-0123456789abcdef"
    leftover.mkdir()
    (tmp_path / ".a.klog-parquet.old").mkdir()
    (tmp_path / ".a.klog-parquet.old/SCHEDIN.parquet").touch()
    for _ in range(3):
        os.utime(log)
        with ThreadPoolExecutor(4) as pool:
            export = ("export", log, "--to", "parquet")
            done = list(pool.map(lambda _: recorder.command(*export), range(4)))  # noqa: B023
        assert [one.code for one in done] == [0] * 4, done
        assert (tmp_path / "a.klog-parquet/meta.json").exists()
    assert not leftover.exists() and not list(tmp_path.glob(".*.part-*"))


@pytest.mark.parametrize("name", ["-o", "--dir"])
def test_a_recording_does_not_follow_links_of_others(recorder, shared, name):
    public, own = shared
    more = ("--segment", "1s") if name == "--dir" else ()
    record = ("record", "-q", "-s", "lifecycle", *more, name)
    link(public / "folder", own)
    check_refused(recorder.command(*record, public / "folder/x", "--", "true"))
    assert sorted(path.name for path in own.iterdir()) == ["victim"]
    # Our own links in the way are followed.
    (public / "mine").symlink_to(own)
    assert recorder.command(*record, public / "mine/x", "--", "true").code == 0
    assert (own / "x").exists()


def test_segments_are_not_made_in_a_folder_of_another_user(recorder, shared):
    public, _ = shared
    (public / "hours").mkdir()
    os.chown(public / "hours", NOBODY, NOBODY)
    done = recorder.command(
        "record",
        "-q",
        "-s",
        "lifecycle",
        "--segment",
        "1s",
        "--dir",
        public / "hours",
        "--",
        "true",
    )
    check_refused(done)
    assert not list((public / "hours").iterdir())


def test_segments_stay_in_the_folder_that_was_made(recorder, workloads, shared):
    """Somebody renames it, and puts a link to another recording in its place."""
    public, own = shared
    (own / "segment-000001.klog").write_text(PRECIOUS)
    out, end = public / "hours", public / "end"
    command = ("-s", SCHEMA, "--segment", "100ms", "--keep", "1")
    process = recorder.start(*command, "--", workloads / "bursts", 997, 1000, end, out=out)
    wait_for(lambda: list(out.glob("segment-*2.klog")), process)
    out.rename(public / "was")
    out.symlink_to(own)
    seen = sorted((public / "was").glob("segment-*.klog"))[-1]
    wait_for(lambda: not seen.exists(), process)
    end.touch()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert sorted(path.name for path in own.iterdir()) == ["segment-000001.klog", "victim"]
    assert (own / "segment-000001.klog").read_text() == PRECIOUS


def test_lines_of_a_trace(recorder, shared):
    public, own = shared
    link(public / "lines", own / "victim")
    check_refused(
        recorder.command("trace", "-s", "lifecycle", "-o", public / "lines", "--", "true")
    )
    assert (own / "victim").read_text() == PRECIOUS
    os.link(own / "victim", public / "hard")
    done = recorder.command("trace", "-s", "lifecycle", "-o", public / "hard", "--", "true")
    assert done.code == 0, done.err
    assert (own / "victim").read_text() == PRECIOUS and (public / "hard").stat().st_size > 0
    for device in ["/dev/null", "/dev/stdout"]:
        done = recorder.command("trace", "-s", "lifecycle", "-o", device, "--", "true")
        assert done.code == 0 and (device == "/dev/null" or done.out), done


def test_other_outputs(recorder, shared):
    public, own = shared
    link(public / "link", own)
    schema = SCHEMA.read_text().replace("schema numbered", "schema planted")
    (public / "planted.klogger").write_text(schema)
    check_refused(recorder.command("gen", public / "planted.klogger", "-o", public / "link"))
    check_refused(recorder.command("manual", public / "link"))
    done = recorder.command("new", public / "link/mine")
    assert done.code == 2 and "belongs to another user" in done.err
    assert [path.name for path in own.iterdir()] == ["victim"]


def test_a_log_that_is_no_file(recorder, tmp_path):
    """Opening it neither waits nor does anything."""
    os.mkfifo(tmp_path / "fifo.klog")
    (tmp_path / "device.klog").symlink_to("/dev/ptmx")
    for name in ["fifo", "device"]:
        folder = tmp_path / name
        folder.mkdir()
        (tmp_path / f"{name}.klog").rename(folder / "segment-000001.klog")
        (tmp_path / f"{name}.klog").symlink_to(folder / "segment-000001.klog")
        for log in [folder, tmp_path / f"{name}.klog"]:
            for command in (["info"], ["cat"], ["cat", "--follow"], ["export"], ["symbolize"]):
                check_refused(recorder.command(*command, log, timeout=20), "not a regular file")


def killed(recorder, workloads, out, *options):
    flood = [workloads / "flood", 1_000_000_000, 0, 1, "unknown"]
    process = recorder.start("-s", SCHEMA, *options, "--", *flood, out=out)
    log = out / "segment-000001.klog" if "--segment" in options else out
    wait_for(lambda: log.exists() and log.stat().st_size > 1 << 20, process)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return process.pid, log


def events(recorder, log: Path) -> int:
    return int(
        re.search(r"events +([\d,]+),", recorder.command("info", log).out)[1].replace(",", "")
    )


@pytest.mark.parametrize("segments", [False, True], ids=["log", "segments"])
def test_a_rescue_onto_a_full_disk_takes_nothing(recorder, workloads, tmp_path, segments):
    """It is done again when there is room; no file that was there is replaced."""
    with small_disk_at(tmp_path / "small", "256m") as disk:
        options = ("--segment", "1h") if segments else ()
        pid, log = killed(recorder, workloads, disk / "x.klog", *options)
        before = log.read_bytes()
        old = log.with_name(f"{log.name}.old")
        old.write_text("older")
        used = sum(path.stat().st_size for path in log.parent.iterdir())
        subprocess.run(["mount", "-o", f"remount,size={used + (256 << 10)}", disk], check=True)
        done = recorder.command("rescue", pid)
        assert done.code == 2 and "no space" in done.err, done
        assert log.read_bytes() == before and old.read_text() == "older"
        assert sorted(path.name for path in log.parent.iterdir()) == [log.name, old.name]
        subprocess.run(["mount", "-o", "remount,size=256m", disk], check=True)
        done = recorder.command("rescue", pid)
        assert done.code == 0, done.err
        made = log if segments else log.with_name("x.rescue.klog")
        kept = log.with_name(f"{log.name}.old2") if segments else log
        assert kept.read_bytes() == before and old.read_text() == "older"
        assert events(recorder, made) >= events(recorder, kept) > 0
        assert not (recorder.dir / "rescue.klog").exists()


def test_a_closed_stderr_does_not_end_a_recording(recorder, tmp_path):
    """As with `2>&1 | head -1`."""
    reader, writer = os.pipe()
    log, end = recorder.path(), tmp_path / "end"
    wait = f"while ! [ -e {end} ]; do sleep 0.01; done; exit 7"
    command = [recorder.klogger, "record", "-s", "lifecycle", "-o", log]
    trigger = ["--trigger", 'RAN: run "echo hello", at most 100 per second']
    process = subprocess.Popen([*command, *trigger, "--", "sh", "-c", wait], stderr=writer)
    os.close(writer)
    wait_for(log.exists, process)
    os.close(reader)
    wait_for(lambda: log.stat().st_size > 100_000 or process.poll() is None, process)
    end.touch()
    assert process.wait(timeout=60) == 7
    assert recorder.command("info", log).code == 0


@pytest.mark.parametrize("words", [("list",), ("info", "LOG"), ("--help",), ("show", "lifecycle")])
def test_a_full_standard_output_is_said(recorder, tmp_path, words):
    log = log_in(tmp_path)
    words = [log if word == "LOG" else word for word in words]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [recorder.klogger, *words], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 2 and "No space left" in done.stderr, done
    assert "panicked" not in done.stderr


@pytest.fixture
def few_threads():
    """A control group whose number of threads can be limited."""
    roots = [Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup")]
    root = next((root for root in roots if (root / "cgroup.procs").exists()), None)
    group = root and root / f"klogger-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / "pids.max").write_text("max")
    except (OSError, AttributeError) as error:
        pytest.skip(f"no control group for threads: {error}")
    yield group
    group.rmdir()


def enter(group: Path):
    return ("sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh")


def test_a_dump_without_a_thread(recorder, workloads, few_threads):
    log, end = recorder.path(), recorder.dir / "end"
    bursts = [workloads / "bursts", 997, 1000, end]
    process = recorder.start(
        "-s", SCHEMA, "--overwrite", "--", *bursts, out=log, prefix=enter(few_threads)
    )
    wait_for(log.exists, process)
    (few_threads / "pids.max").write_text((few_threads / "pids.current").read_text())
    end.touch()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0 and "panicked" not in err, err
    assert events(recorder, log) > 0


def test_a_recording_without_threads(recorder, few_threads):
    """With each limit it records, or says why not; nothing is left running."""
    for limit in range(1, 8):
        (few_threads / "pids.max").write_text(str(limit))
        log = recorder.path()
        process = recorder.start(
            "-q", "-s", SCHEMA, "--", "true", out=log, prefix=enter(few_threads)
        )
        _, err = process.communicate(timeout=60)
        assert process.returncode in (0, 2) and "panicked" not in err, (limit, err)
        assert process.returncode == 0 or err.startswith("klogger: "), (limit, err)
        wait_for(lambda: not (few_threads / "cgroup.procs").read_text())


def gen(out, *before, **variables):
    """Writes a header into the folder; returns what was said, or nothing if that went well."""
    command = [*before, "klogger", "gen", SCHEMA, "-o", out]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **variables}
    )
    assert done.returncode == (2 if done.stderr else 0), done
    return done.stderr


def test_sudo_is_as_its_user(tmp_path):
    home, data = tmp_path / "home", tmp_path / "data"
    home.mkdir()
    data.mkdir()
    (home / "link").symlink_to(data)
    for path in (home, home / "link"):
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    for user in ("", "1", "x"):
        said = gen(home / "link", SUDO_UID=user)
        assert f"link {home}/link belongs to another user ({NOBODY})" in said
    assert not list(data.iterdir())
    assert not gen(home / "link", SUDO_UID=str(NOBODY), SUDO_GID=str(NOBODY))
    assert list(data.iterdir())
    # In a folder that he shares with others, not even then.
    home.chmod(0o777)
    said = gen(home / "link", SUDO_UID=str(NOBODY))
    assert "other users may write to its folder" in said


def test_a_user_namespace_does_not_know_root(tmp_path):
    """There, root and its links are shown as of a user that is nobody's."""
    # Other users pass neither the folder of the tests nor, perhaps, that of the program.
    with tempfile.TemporaryDirectory() as folder, Path(shutil.which("klogger")).open("rb") as made:
        own = Path(folder)
        own.chmod(0o700)
        (own / "data").mkdir()
        (own / "link").symlink_to(own / "data")
        shutil.copy(SCHEMA, own)
        for path in (own, *own.iterdir()):
            os.chown(path, NOBODY - 1, NOBODY - 1, follow_symlinks=False)
        user = ["setpriv", f"--reuid={NOBODY - 1}", f"--regid={NOBODY - 1}", "--clear-groups"]
        command = [*user, "unshare", "-Ur"]
        if subprocess.run([*command, "true"], check=False, capture_output=True).returncode:
            pytest.skip("no user namespaces for users here")
        command += [f"/proc/self/fd/{made.fileno()}", "gen", own / SCHEMA.name, "-o"]
        for out in (own / "link", Path("/proc/self/cwd/data")):
            done = subprocess.run(
                [*command, out],
                cwd=own,
                pass_fds=[made.fileno()],
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            (own / "data" / f"{SCHEMA.name}.h").unlink()
