# SPDX-License-Identifier: GPL-2.0-only
"""User stacks are the calls that a program makes: with and without position-independent code, in a
library that is loaded late, in code that it makes, without debug information and without a table of
symbols, in a forked child, and after another exec. `klogger symbolize` names them later.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from oracles import Log

SCHEMA = """schema who "Who renames a thread"

event RENAMED "a thread has a new name" {
    string[16] name
    uint       caller as stack
    uint       kernel as stack
    context    user_stack stack
}

probe tracepoint task_rename(struct task_struct *task, const char *comm) {
    klogger(RENAMED, comm, klogger_user_stack(), klogger_stack());
}
"""
SOURCES = Path(__file__).parent
FLAGS = [
    "-O2",
    "-fno-omit-frame-pointer",
    "-mno-omit-leaf-frame-pointer",
    "-fno-optimize-sibling-calls",
]
USUAL = ["innermost", "middle", "outer", "main"]


def compile_all(folder):
    shutil.copy(SOURCES / "chain.c", folder)
    shutil.copy(SOURCES / "chain_library.c", folder)

    def cc(*words):
        subprocess.run(["cc", *FLAGS, *words], cwd=folder, check=True)

    cc("-shared", "-fPIC", "-g", "chain_library.c", "-o", "library.so")
    cc("-pie", "-fPIE", "chain.c", "-ldl", "-o", "pie")
    cc("-no-pie", "-fno-pie", "chain.c", "-ldl", "-o", "fixed")
    cc("-pie", "-fPIE", "-g", "chain.c", "-ldl", "-o", "debug")
    cc("-static", "-g0", "-w", "chain.c", "-ldl", "-o", "static")
    cc("-pie", "-fPIE", "-rdynamic", "-s", "chain.c", "-ldl", "-o", "stripped")
    cc("-pie", "-fPIE", "-fomit-frame-pointer", "chain.c", "-ldl", "-o", "frameless")


# By the name that each gives itself, which is not that of the program.
RUNS = {
    "in pie": "./pie usual",
    "in fixed": "./fixed usual",
    "in debug": "./debug usual",
    "in stripped": "./stripped usual",
    "in forked": "./pie forked",
    "in library": "./pie late",
    "in made": "./pie made",
    "in deep": "./pie deep",
    "in frameless": "./frameless usual",
    "in leaf": "./pie leaf",
    "in wide": "./pie wide",
    "in libc": "./fixed libc",
    "in thread": "./stripped thread",
    "in decoy": "./pie decoy",
    "in hidden": "./pie hidden",
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("programs")
    compile_all(folder)
    return folder


@pytest.fixture
def recorded(recorder, programs):
    (recorder.dir / "who.klogger").write_text(SCHEMA)
    script = f"cd {programs}; " + "; ".join(
        f"{words} '{name}' ./library.so" for name, words in RUNS.items()
    )
    done, out = recorder.run("-q", "-s", recorder.dir / "who.klogger", "--", "sh", "-c", script)
    for left in Path("/tmp").glob("perf-*.map"):
        if "made by a program" in left.read_text(errors="replace"):
            left.unlink()
    assert done.code == 0, done.err
    return out


def stacks(log):
    """(frames, files, sources, whole, text) of the user stack, by the name that was given."""
    rows = log.rows(
        "SELECT name, s.frames, s.files, s.sources, s.whole, s.text FROM RENAMED"
        " JOIN stack AS s ON s.id = user_stack WHERE s.kind = 'user'"
    )
    return {name: rest for name, *rest in rows}


def test_user_stacks_are_the_calls(recorder, recorded, programs):
    log = Log(recorder.klogger, recorded)
    found = stacks(log)
    assert set(RUNS) <= set(found)
    for name in ("in pie", "in fixed", "in stripped", "in forked"):
        frames, files, _, whole, text = found[name]
        assert frames[:4] == USUAL, (name, text)
        assert whole, (name, text)
        program = RUNS[name].split()[0][2:]
        assert files[0] == str(programs / program)
    # With debug information the function is there that was inlined, and the lines.
    frames, _, sources, whole, text = found["in debug"]
    assert frames[:5] == ["innermost", "inlined", "middle", "outer", "main"], text
    lines = (programs / "chain.c").read_text().splitlines()
    at = [int(source.rpartition(":")[2]) for source in sources[:5]]
    assert "innermost(name);" in lines[at[1] - 1] and "inlined(name)" in lines[at[2] - 1]
    assert "middle(name)" in lines[at[3] - 1] and whole
    frames, files, _, _, text = found["in library"]
    assert frames[:4] == ["innermost", "in_library", "late", "main"], text
    assert files[1] == str(programs / "library.so")
    frames, _, _, _, text = found["in made"]
    assert frames[:4] == ["innermost", "made by a program", "made", "main"], text
    # The kernel follows 127 frames.
    frames, _, _, whole, text = found["in deep"]
    assert frames == ["innermost"] + 126 * ["deep"] and not whole and text.endswith("<...")
    # Without frame pointers as well.
    frames, _, _, whole, text = found["in frameless"]
    assert frames[:4] == USUAL and whole and "?" not in text, text


@pytest.mark.full("others of this file are in the gate")
def test_the_caller_of_a_function_without_a_frame(recorder, recorded):
    """It is there if the unwind tables say where its address is."""
    found = stacks(Log(recorder.klogger, recorded))
    for name, function in {"in leaf": "leaf", "in wide": "wide"}.items():
        frames, _, _, whole, text = found[name]
        assert frames[:3] == [function, f"calls_{function}", "main"] and whole, text
        assert "?" not in text
    for name, outer in {"in libc": ["renames", "main"], "in thread": ["renames"]}.items():
        frames, files, _, whole, text = found[name]
        at = frames.index("writes")
        assert frames[at + 1 :][: len(outer)] == outer, text
        assert at > 0 and all(Path(file).name.startswith("libc") for file in files[:at]), text
        assert whole and "?" not in text, text
    # Among other words that are addresses after a call.
    frames, _, _, whole, text = found["in decoy"]
    assert frames[:3] == ["decoy", "calls_decoy", "main"] and whole and "?" not in text, text
    frames, _, _, whole, text = found["in hidden"]
    assert frames[:5] == ["innermost", "hides", "hidden", "above", "main"], text
    assert whole and "?" not in text, text


@pytest.mark.full("others of this file are in the gate")
def test_both_ways_to_take_a_stack_agree_and_numbers_are_those_of_a_kind(recorder, recorded):
    log = Log(recorder.klogger, recorded)
    assert log.count("RENAMED", "caller != user_stack OR caller = 0") == 0
    kinds = log.rows(
        "SELECT DISTINCT k.kind, u.kind FROM RENAMED JOIN stack AS k ON k.id = stack"
        " JOIN stack AS u ON u.id = user_stack"
    )
    assert kinds == [("kernel", "user")]
    shown = recorder.command("cat", recorded, "--where", 'name == "in pie"').out
    assert "innermost+" in shown and "<middle+" in shown and "<main+" in shown


@pytest.mark.full("others of this file are in the gate")
def test_programs_in_containers(recorder, programs, tmp_path):
    """With a root, mounts and process numbers of their own: while they live, after they have ended,
    and later by hand, if they were too short to be looked at.
    """
    (recorder.dir / "who.klogger").write_text(SCHEMA)
    box, other = tmp_path / "box", tmp_path / "other"
    for folder in (box, other):
        (folder / "bin").mkdir(parents=True)
        (folder / "tmp").mkdir()
        shutil.copy(programs / "static", folder / "bin/inside")
    os.mkfifo(tmp_path / "pipe")
    # It is open for writing, so that who reads waits.
    pipe = os.open(tmp_path / "pipe", os.O_RDWR)
    enter = "unshare -m -p -f chroot"
    script = (
        f"{enter} {other} /bin/inside usual 'was short' || exit 1;"
        f" sleep 0.5 | {enter} {box} /bin/inside usual 'has ended' wait || exit 1;"
        f" {enter} {box} /bin/inside made 'is there' wait <{tmp_path}/pipe >/dev/null 2>&1 &"
        f" until test -e {box}/tmp/perf-1.map; do sleep 0.05; done; sleep 0.5"
    )
    try:
        done, out = recorder.run("-q", "-s", recorder.dir / "who.klogger", "--", "sh", "-c", script)
    finally:
        os.write(pipe, b"x")
        os.close(pipe)
    assert done.code == 0, done.err
    found = stacks(Log(recorder.klogger, out))
    frames, files, _, _, text = found["is there"]
    # The map is /tmp/perf-1.map, because the program has the number 1 there.
    assert frames[:4] == ["innermost", "made by a program", "made", "main"], text
    assert files[0] == "/bin/inside"
    assert found["has ended"][0][:4] == USUAL, found["has ended"]
    assert recorder.command("symbolize", out, "--sysroot", other).code == 0
    named = stacks(Log(recorder.klogger, out))
    assert named["was short"][0][:4] == USUAL
    assert named["is there"] == found["is there"]


@pytest.mark.full("others of this file are in the gate")
def test_the_code_that_the_kernel_gives_to_programs(recorder, programs):
    """The functions of the vdso have names."""
    (recorder.dir / "clock.klogger").write_text(
        "schema clock\nevent TICK { context user_stack }\nprobe timer 999Hz() { klogger(TICK); }\n"
    )
    done, out = recorder.run(
        "-q", "-s", recorder.dir / "clock.klogger", "--", programs / "pie", "clock"
    )
    assert done.code == 0, done.err
    rows = Log(recorder.klogger, out).rows(
        "SELECT s.frames, s.text, count(*) FROM tick JOIN stack AS s ON s.id = user_stack"
        " WHERE s.files[1] = '[vdso]' GROUP BY ALL"
    )
    assert sum(count for *_, count in rows) > 100
    for frames, text, _ in rows:
        assert "clock_gettime" in frames[0], text
        # libc's function has no frame, and hides `main`.
        assert "clock_gettime" in frames[1], text
        assert "main" in frames or "<?<" in text, text


@pytest.mark.full("others of this file are in the gate")
def test_names_are_found_later_by_build_id(recorder, programs, tmp_path):
    (recorder.dir / "who.klogger").write_text(SCHEMA)
    moved = tmp_path / "moved"
    moved.mkdir()
    shutil.copy(programs / "pie", moved / "bare")
    subprocess.run(
        ["objcopy", "--only-keep-debug", programs / "debug", tmp_path / "bare.debug"], check=True
    )
    shutil.copy(programs / "debug", moved / "bare")
    subprocess.run(["strip", moved / "bare"], check=True)
    done, out = recorder.run(
        "-q", "-s", recorder.dir / "who.klogger", "--", moved / "bare", "usual", "later"
    )
    assert done.code == 0, done.err
    (frames, *_, text) = stacks(Log(recorder.klogger, out))["later"]
    assert frames[:2] == ["bare", "bare"], text
    (moved / "bare").unlink()
    plain = json.loads(recorder.command("symbolize", out, "--format", "json").out)
    mine = [file for file in plain["missing"] if file["path"].endswith("/bare")]
    assert mine[0]["why"] == "there is no such file" and len(mine[0]["build_id"]) == 40
    folder = tmp_path / "debug/.build-id" / mine[0]["build_id"][:2]
    folder.mkdir(parents=True)
    shutil.copy(tmp_path / "bare.debug", folder / (mine[0]["build_id"][2:] + ".debug"))
    before = out.read_bytes()
    new = tmp_path / "new.klog"
    done = recorder.command("symbolize", out, "--debug-dir", tmp_path / "debug", "-o", new)
    assert done.code == 0 and out.read_bytes() == before
    assert new.stat().st_mode == out.stat().st_mode
    log, old = Log(recorder.klogger, new), Log(recorder.klogger, out)
    (frames, *_, text) = stacks(log)["later"]
    assert frames[:5] == ["innermost", "inlined", "middle", "outer", "main"], text
    assert log.rows("FROM RENAMED") == old.rows("FROM RENAMED")
    # In place: the names that it had are kept if nothing is found now.
    shutil.rmtree(tmp_path / "debug")
    assert recorder.command("symbolize", new).code == 0
    assert stacks(Log(recorder.klogger, new))["later"][0] == frames


@pytest.mark.full("others of this file are in the gate")
def test_what_cannot_be_named_later_is_refused(recorder, recorded):
    plain, _ = recorder.run("-q", "-e", "sched_switch", "--", "true")
    assert plain.code == 0, plain.err
    log = recorder.dir / "without.klog"
    recorder.run("-q", "-e", "task_rename", "--", "true", out=log)
    refused = recorder.command("symbolize", log)
    assert refused.code == 2
    assert refused.err == (
        f"klogger: {log} has no user stacks, and no data of programs\n"
        "  help: only these are named later: events take stacks with klogger_user_stack() or"
        " `context user_stack`, and have data in fields `as data`\n"
    )
    refused = recorder.command("symbolize", recorded, "--sysroot", "/nowhere")
    assert refused.code == 2
    assert refused.err == "klogger: --sysroot: there is no directory /nowhere\n"
    cut = recorder.dir / "cut.klog"
    cut.write_bytes(recorded.read_bytes()[:-30])
    refused = recorder.command("symbolize", cut)
    assert refused.code == 2 and "is damaged or incomplete, and is not rewritten" in refused.err
