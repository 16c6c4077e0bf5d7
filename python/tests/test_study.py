# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`klogger study`: how studies are found, planned, recorded and shown. A stand-in plays the
recorder.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest
import support

from klogger import figure
from klogger.analysis import Column, Picture
from klogger.executor import Rows
from klogger.failure import Failure
from klogger_lab import build, machine
from klogger_lab.cli import study as command
from klogger_lab.study import abilities, discover, recording, runner
from klogger_lab.study.model import Arm, result

# Runs the command of an arm as klogger does, and has a log that was made before.
FAKE = """#!/bin/sh
case "$1" in
list) echo '[{{"name": "scheduler"}}]'; exit ;;
export) mkdir -p "$4-parquet"; cp "{tables}"/* "$4-parquet"; exit ;;
show) echo '{show}'; exit ;;
esac
echo "$@" >> "{record}"
while [ "$1" != -- ]; do
    [ "$1" != -o ] || : > "$2"
    shift
done
shift
[ "$1" != refuse ] || {{ echo '{refused}' >&2; exit 2; }}
exec "$@"
"""
REFUSED = json.dumps({"message": "error", "text": "no such probe", "help": "newer kernel"})
SHOW = json.dumps(
    {
        "kernel_error": None,
        "probes": [
            {"attaches": True, "events": ["A", "B"]},
            {"attaches": False, "events": ["B"]},
            {"attaches": False, "events": ["C"]},
        ],
    }
)
STUDY = """
import contextlib
from klogger.analysis import Column, Picture
from klogger_lab.study.model import Answer, Arm, Check, Study, result

@contextlib.contextmanager
def around():
    {before}
    try:
        yield "counted"
    finally:
        open({left!r}, "a").write("left\\n")

def arms(plan):
    return [Arm(f"arm {{k}}", {command}, 1, {{"k": k}}, environment={{"K": str(k)}}, around=around)
            for k in range(2)]

def analyse(plan, runs):
    {analyse}
    rows = [[r.arm.name, int(r.output), 100, r.oracle] for r in runs]
    columns = [Column("arm", "", False, "arm"), Column("got", "count", False, "what it printed"),
               Column("paper", "count", False, "the paper's"),
               Column("oracle", "", False, "who counted")]
    counted = runs[0].log.rows("SELECT count(*) FROM SCHEDIN")[0][0]
    return Answer(
        [result("first", "Firsts", "How many?", columns, rows,
                Picture("bars", {{"x": "got", "y": "arm"}}))],
        ["Two were run."],
        [Check("switches", counted == {expected}, f"{{counted}} and {expected}")],
        ["No kprobes."],
    )

STUDY = Study("{name}", "Title", "Is it?", "Figure 0", "It was.", ("scheduler",), arms, analyse,
              {seconds}, 2)
"""


@pytest.fixture
def place(tmp_path: Path, small_log: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of studies that only the test sees, and a stand-in for klogger. Returns
    the folder.
    """
    program = tmp_path / "bin" / "klogger"
    program.parent.mkdir()
    program.write_text(
        FAKE.format(tables=small_log, record=tmp_path / "record", show=SHOW, refused=REFUSED)
    )
    program.chmod(0o755)
    folder = tmp_path / "schemata" / "scheduler" / "studies"
    folder.mkdir(parents=True)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("KLOGGER", str(program))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(discover, "schemata", lambda: [tmp_path / "schemata"])
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return folder


def write(place: Path, name: str = "one", **parts: object) -> Path:
    words: dict[str, object] = {
        "name": name, "before": "pass", "left": str(place / "left"),
        "command": '["sh", "-c", "echo $K$K"]', "analyse": "pass", "expected": 40, "seconds": 4,
        **parts,
    }  # fmt: skip
    path = place / f"{name}.py"
    path.write_text(STUDY.format(**words))
    return path


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = command.main(list(words))
    out, err = capsys.readouterr()
    return code, out, err


def test_a_study_from_its_arms_to_its_answer(
    capsys: pytest.CaptureFixture[str], place: Path, tmp_path: Path
) -> None:
    write(place)
    code, out, err = run(capsys, "one", "--budget", "3s")
    assert (code, err) == (0, "")
    for text in (
        "one: Title",
        "Figure 0",
        "Is it?",
        "found: It was.",
        "Two were run.",
        "No kprobes.",
    ):
        assert text in out
    assert "  ok switches: 40 and 40" in out
    assert [line.split() for line in out.splitlines() if line.startswith("arm ")][1:] == [
        ["arm", "0", "0", "100", "counted"], ["arm", "1", "11", "100", "counted"],
    ]  # fmt: skip
    assert all(len(line) <= 100 for line in out.splitlines())
    commands = (tmp_path / "record").read_text().splitlines()
    assert [c.split(" -o ")[0] for c in commands] == ["record -q --messages json -s scheduler"] * 2
    assert (place / "left").read_text() == "left\nleft\n"
    assert list((tmp_path / "tmp").iterdir()) == []


def test_the_example_of_the_documentation(capsys: pytest.CaptureFixture[str], place: Path) -> None:
    text = (support.ROOT / "docs" / "studies.md").read_text()
    example = re.search(r"^    from klogger\.analysis(.|\n)*?^    \)$", text, re.M)
    assert example is not None
    (place / "wakes.py").write_text(re.sub(r"^    ", "", example[0], flags=re.M))
    (place / "wake.c").write_text('#include <stdio.h>\nint main(void) { puts("0"); return 0; }\n')
    code, out, err = run(capsys, "wakes")
    assert (code, err) == (0, "")
    assert "  ok runs at 100 Hz: 0 logged, 0 by itself" in out


def test_answer_as_json_page_and_pictures(
    capsys: pytest.CaptureFixture[str], place: Path, tmp_path: Path
) -> None:
    write(place)
    page, pictures, kept = tmp_path / "x.html", tmp_path / "png", tmp_path / "kept"
    code, out, _ = run(
        capsys,
        "one",
        "--format",
        "json",
        "--html",
        str(page),
        "--png",
        str(pictures),
        "--keep",
        str(kept),
    )
    assert code == 0
    (study,) = json.loads(out)["studies"]
    assert study["results"][0]["table"][1] == {
        "arm": "arm 1",
        "got": 11,
        "paper": 100,
        "oracle": "counted",
    }
    assert study["checks"] == [{"name": "switches", "ok": True, "text": "40 and 40"}]
    assert [(arm["name"], arm["events"]) for arm in study["arms"]] == [
        ("arm 0", 163),
        ("arm 1", 163),
    ]
    assert 'data-picture="one-first"' in page.read_text() and "It was." in page.read_text()
    assert (pictures / "one-first.png").read_bytes().startswith(b"\x89PNG")
    assert (kept / "one" / "01-arm-0.klog-parquet" / "meta.json").exists()


@pytest.mark.parametrize("option", ["--png", "--html"])
def test_the_answer_is_shown_beside_its_files(
    capsys: pytest.CaptureFixture[str], place: Path, tmp_path: Path, option: str
) -> None:
    write(place)
    to = tmp_path / "out"
    code, out, err = run(capsys, "one", option, str(to))
    assert (code, err) == (0, "")
    assert "  ok switches: 40 and 40" in out and "It was." in out
    files = sorted(to.iterdir()) if option == "--png" else [to]
    assert files
    assert [line for line in out.splitlines() if line.startswith("wrote ")] == [
        f"wrote {f}" for f in files
    ]


def test_a_check_that_failed(capsys: pytest.CaptureFixture[str], place: Path) -> None:
    write(place, expected=41)
    code, out, _ = run(capsys, "one")
    assert code == 1
    assert "  FAILED switches: 40 and 41" in out


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (
            {"analyse": "1 / 0"},
            "klogger: study 'one', analyse: one.py, line 19: ZeroDivisionError: division by zero\n",
        ),
        (
            {"before": "open('/none')"},
            "klogger: study 'one', arm 'arm 0': one.py, line 8: FileNotFoundError: ",
        ),
        (
            {"command": '["refuse"]'},
            "klogger: arm 'arm 0' failed: no such probe\n  help: newer kernel\n",
        ),
        (
            {"command": '["false"]'},
            "klogger: arm 'arm 0' failed: its command ended with exit code 1 and no message\n",
        ),
        (
            {"command": '[plan.build("no.c")]'},
            "no.c: no such file, and the study needs the program\n",
        ),
    ],
)
def test_what_fails_is_one_message(
    capsys: pytest.CaptureFixture[str],
    place: Path,
    tmp_path: Path,
    parts: dict[str, object],
    message: str,
) -> None:
    write(place, **parts)
    code, out, err = run(capsys, "one")
    assert (code, out) == (2, "")
    assert message in err and "Traceback" not in err
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("STUDY = 1", "one.py: sets no STUDY"),
        (
            "import nonesuch",
            "one.py: one.py, line 1: ModuleNotFoundError: No module named 'nonesuch'",
        ),
        ("def f(:", "one.py: line 1: "),
        ("from . import _other", "_other.py, line 2: NameError: name 'b' is not defined"),
    ],
)
def test_file_that_is_broken(
    capsys: pytest.CaptureFixture[str], place: Path, text: str, message: str
) -> None:
    (place / "one.py").write_text(text)
    (place / "_other.py").write_text("a = 1\nb\n")
    write(place, "two")
    code, _, err = run(capsys, "one")
    assert code == 2
    assert message in err and err.count("klogger: ") == 1
    # The others can be listed and run.
    code, out, err = run(capsys, "--list")
    assert code == 2 and message in err and "two" in out
    assert run(capsys, "two")[0] == 0


def test_all_goes_on_after_one_that_fails(capsys: pytest.CaptureFixture[str], place: Path) -> None:
    write(place, "bad", analyse="1 / 0")
    write(place, "good")
    code, out, _ = run(capsys, "all", "--budget", "10s")
    assert code == 2
    assert "no answer" in out and "ZeroDivisionError" in out and "ok switches" in out


def test_unknown_name(capsys: pytest.CaptureFixture[str], place: Path) -> None:
    write(place, "quanta")
    code, _, err = run(capsys, "quants")
    assert (code, err) == (2, "klogger: there is no study 'quants'\n  help: did you mean quanta?\n")


def test_budget_that_is_too_short(capsys: pytest.CaptureFixture[str], place: Path) -> None:
    write(place)
    code, _, err = run(capsys, "one", "--budget", "1s")
    assert (code, err) == (
        2,
        "klogger: 'one' needs at least 2 s, and the budget is 1 s\n  help: --budget 2s\n",
    )


def test_budget_is_shared_by_what_each_takes(place: Path) -> None:
    write(place, "long", seconds=30)
    write(place, "short", seconds=10)
    found = [discover.find(name) for name in ("long", "short")]
    assert runner.shares(found, None) == [30, 10]
    assert runner.shares(found, 12) == [2 + 8 * 0.75, 2 + 8 * 0.25]
    with pytest.raises(Failure, match="these 2 studies need at least 4 s"):
        runner.shares(found, 3)


def test_without_root(
    capsys: pytest.CaptureFixture[str], place: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write(place)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    code, _, err = run(capsys, "one")
    assert code == 2
    assert err.startswith(
        "klogger: a study records the kernel's events, which needs root\n  help: sudo klogger study"
    )
    assert not (tmp_path / "record").exists()


def test_list_says_what_the_kernel_can_do(capsys: pytest.CaptureFixture[str], place: Path) -> None:
    write(place)
    code, out, _ = run(capsys)
    assert code == 0
    assert "one          Title: Figure 0; 4 s, 2 at least" in out
    assert "scheduler: 1 of 3 probes attach here; this kernel cannot log C" in out
    assert abilities.sentence("x", "no kernel") == "x: cannot be recorded here: no kernel"
    assert abilities.sentence("x", {"probes": []}) == "x: logged by programs"


def test_stopped_study_is_unwound(
    capsys: pytest.CaptureFixture[str], place: Path, tmp_path: Path
) -> None:
    """SIGTERM, as Ctrl-C: the command ends, also what it started; `around` is left; no file
    remains.
    """
    pid = tmp_path / "pid"
    write(place, command=f'["sh", "-c", "sleep 100 & echo $! > {pid}; setsid sleep 100 & wait"]')

    def stop() -> None:
        while not pid.exists() or not pid.read_text():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    before = recording.children()
    stopper = threading.Thread(target=stop)
    stopper.start()
    code, _, err = run(capsys, "one")
    stopper.join()
    assert (code, err) == (130, "klogger: interrupted; everything is put back\n")
    assert (place / "left").read_text() == "left\n"
    assert not Path(f"/proc/{pid.read_text().strip()}").exists()
    assert recording.children() == before
    assert list((tmp_path / "tmp").iterdir()) == []
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_arm_that_does_not_end(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "GRACE", 1.0)
    arm = Arm("slow", ["sleep", "100"], 0.01)
    with pytest.raises(
        Failure, match="arm 'slow' has not ended after 1 s; it should have taken 0 s"
    ):
        recording.record(arm, ["scheduler"], tmp_path / "x.klog", tmp_path, lambda: None)


def test_programs_are_compiled_once(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "p.c").write_text("int main(void) { return VALUE; }\n")
    with pytest.raises(Failure, match=r"p\.c: cannot be compiled\n(.|\n)*'VALUE' undeclared"):
        build.build(place, "p.c")
    (place / "p.c").write_text("int main(void) { return 0; }\n")
    made = build.build(place, "p.c")
    assert made.name == "p" and made.is_relative_to(tmp_path / "cache")
    first = made.stat().st_ino
    assert build.build(place, "p.c").stat().st_ino == first
    (place / "p.c").write_text("int main(void) { return 1; }\n")
    assert build.build(place, "p.c") != made
    monkeypatch.setenv("CC", "nonesuch-cc")
    with pytest.raises(Failure, match="there is no C compiler") as error:
        build.build(place, "p.c")
    assert "apt install gcc" in str(error.value)


def test_programs_by_other_compilers(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compiler's first argument comes before all others, further flags after ours."""
    (place / "p.c").write_text("int main(void) { return VALUE; }\n")
    other = tmp_path / "other-cc"
    other.write_text('#!/bin/sh\n[ "$1" = first ] && shift && exec cc "$@"\n')
    other.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    programs = [
        build.build(place, "p.c", compiler="other-cc first", flags=(f"-DVALUE={value}",))
        for value in (3, 4)
    ]
    assert [subprocess.run([one], check=False).returncode for one in programs] == [3, 4]
    with pytest.raises(Failure, match=r"there is no C compiler \('nonesuch-cc'\)") as error:
        build.build(place, "p.c", compiler="nonesuch-cc first")
    assert error.value.help is None


def test_machine_of_this_test() -> None:
    here = machine.machine()
    assert here.cpus == len(os.sched_getaffinity(0)) and here.kernel == os.uname().release
    assert here.memory == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert set(here.lacks) <= set(machine.ABILITIES)
    assert (machine.bytes_of("48K"), machine.bytes_of("2M"), machine.bytes_of("?")) == (
        48 << 10,
        2 << 20,
        0,
    )


def drawn(
    picture: Picture, names: list[str], rows: list[list[object]], unit: str = "ns"
) -> list[str]:
    columns = [Column(n, unit if n == "x" else "", False, f"the {n}") for n in names]
    return figure.lines(result("r", "T", "Q?", columns, rows, picture, Rows(names, rows)))


def test_curves_in_characters() -> None:
    rows = [
        ["one", 10, 0.5],
        ["one", 1000, 1.0],
        ["two", 1000, 0.5],
        ["two", 100_000, 1.0],
        ["two", 0, 0.1],
    ]
    lines = drawn(
        Picture("cdf", {"x": "x", "y": "y", "colour": "c", "scale": "log"}), ["c", "x", "y"], rows
    )
    full, half = (line for line in lines if line.startswith(("   50%", "  100%")))
    # From 10 to 1000 the first one is at a half; from there on at 1, and the second at a half.
    assert half[8:] == "a" * 34 + "b" * 35
    assert full[8:] == " " * 34 + "a" + " " * 34 + "b"
    assert lines[-1].split() == ["a", "one", "b", "two"]
    assert "10 ns" in lines[-3] and "100 µs" in lines[-3]


def test_the_middle_of_curves_in_characters() -> None:
    rows: list[list[object]] = [
        [-5000, 0],
        *([10 * i, i / 100] for i in range(1, 100)),
        [10**9, 1.0],
    ]
    picture = Picture("cdf", {"x": "x", "y": "y", "zoom": "ends"})
    lines = drawn(picture, ["x", "y"], rows)
    ticks = next(line for line in lines if "ns" in line)
    assert ticks.split() == ["100", "ns", "300", "ns", "500", "ns", "700", "ns", "900", "ns"]
    assert "without the shortest and the longest tenth" in " ".join(" ".join(lines).split())


def test_bars_in_characters() -> None:
    rows: list[list[object]] = [
        ["one", 1000, "a"],
        ["one", 1000, "b"],
        ["two", 1000, "b"],
        ["three", 0, "a"],
    ]
    lines = drawn(Picture("stacked", {"x": "x", "y": "y", "colour": "c"}), ["y", "x", "c"], rows)
    assert lines[0].split() == ["one", "2.00", "µs", "█" * 27 + "▒" * 27]
    assert lines[1].split()[-1] == "▒" * 27 and lines[2].split() == ["three", "0", "ns"]
    lines = drawn(
        Picture("bars", {"x": "x", "y": "y"}),
        ["y", "x"],
        [["one", 4], ["two", 2], ["none", None]],
        "",
    )
    assert [line.count("█") for line in lines] == [42, 21, 0]


def test_bins_in_characters() -> None:
    rows: list[list[object]] = [[0, 50, 8], [50, 100, 4]]
    lines = drawn(Picture("histogram", {"x": "x", "x2": "x2", "y": "y"}), ["x", "x2", "y"], rows)
    assert lines[0].count("█") == 35 and lines[4].count("█") == 70


@pytest.mark.parametrize("kind", ["cdf", "bars", "stacked", "histogram"])
def test_figures_of_nothing(kind: str) -> None:
    parts = {"x": "x", "y": "y", "x2": "x2", "colour": "c"}
    names = ["x", "y", "x2", "c"]
    for rows in ([], [[None, None, None, None]], [[0, 0, 0, "c"]], [[5, 0, 5, "c"]]):
        assert all(len(line) <= 100 for line in drawn(Picture(kind, parts), names, rows))


@pytest.mark.parametrize(
    "path", sorted(support.SCHEMATA.glob("*/studies/[a-z]*.py")), ids=lambda p: p.stem
)
def test_each_study_can_be_loaded(path: Path) -> None:
    study = discover.load(path).study
    assert study.title and study.question.endswith("?") and study.paper and study.found
    assert 0 < study.least_seconds <= study.seconds
    assert path.read_text().startswith("# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause\n")
