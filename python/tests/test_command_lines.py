# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Options stand before, between and behind the other words of each command; and what a command says
about a log does not act on the terminal.
"""

from __future__ import annotations

import argparse
import json
import os
import pty
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
import support

from klogger.cli import analysis, compare, complain, dataset, private_as, report, sql, verify
from klogger.failure import Failure
from klogger.outputs import write
from klogger_lab.cli import bench, collect, guest, mcp, stopwatch, study, top, watch, why

LINES: dict[str, tuple[Callable[[], argparse.ArgumentParser], list[str], list[list[str]]]] = {
    "sql": (sql.parser, ["x.klog", "SELECT 1"], [["--format", "json"], ["-o", "out"]]),
    "sql from a pipe": (sql.parser, ["x.klog", "-"], [["--format", "csv"]]),
    "sql tables": (sql.parser, ["x.klog"], [["-i"]]),
    "report": (report.parser, ["x.klog"], [["--format", "json"], ["--analysis", "quanta"]]),
    "compare": (compare.parser, ["a.klog", "b.klog"], [["--format", "json"], ["--fail-on", "5%"]]),
    "stopwatch": (
        stopwatch.parser,
        ["x.klog", "A", "B"],
        [["--format", "json"], ["--key", "id"], ["-a"]],
    ),
    "watch": (watch.parser, [], [["-s", "files"], ["--format", "json"], ["-q"]]),
    "top": (top.parser, [], [["-s", "futex"], ["--once", "--format", "json"], ["-a"]]),
    "study": (study.parser, ["quanta"], [["--budget", "20s"], ["--format", "json"]]),
    "bench": (bench.parser, [], [["-s", "locking"], ["--rate"]]),
    "verify": (verify.parser, ["claim.json", "x.klog"], [["--format", "json"]]),
    "mcp": (mcp.parser, [], [["--skill"], ["--config", "mcp.toml"]]),
    "guest": (guest.parser, [], [["-s", "scheduler"], ["-v"]]),
}


@pytest.mark.parametrize(
    ("parser", "words", "tip"),
    [
        (report.parser, ["x.klog", "--htlm", "out"], "\n  help: did you mean --html?\n"),
        (sql.parser, ["x.klog", "--formt=json"], "\n  help: did you mean --format?\n"),
        (study.parser, ["--budjet", "3s"], "\n  help: did you mean --budget?\n"),
        (
            bench.parser,
            ["--xyzzy"],
            "klogger bench: unrecognized arguments: --xyzzy\n"
            "  help: 'klogger bench --help' lists the options\n",
        ),
    ],
)
def test_an_option_may_have_been_misspelt(
    parser: Callable[[], argparse.ArgumentParser],
    words: list[str],
    tip: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        parser().parse_intermixed_args(words)
    assert ended.value.code == 2
    assert capsys.readouterr().err.endswith(tip)


def orders(words: list[str], options: list[list[str]]) -> list[list[str]]:
    """All options together at each place, and one of them at each place."""
    given = [word for option in options for word in option]
    found = [words[:at] + given + words[at:] for at in range(len(words) + 1)]
    rest = [word for option in options[1:] for word in option]
    return found + [words[:at] + options[0] + words[at:] + rest for at in range(len(words) + 1)]


@pytest.mark.parametrize("name", LINES)
def test_options_stand_anywhere(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parser, words, options = LINES[name]
    module = sys.modules[parser.__module__]
    seen: list[argparse.Namespace] = []
    # As the command itself takes its words.
    command = name.split(maxsplit=1)[0]
    monkeypatch.setattr(module, command, lambda args, *_: seen.append(args) or 0)
    for line in orders(words, options):
        module.main(line)
    assert len(seen) == len(orders(words, options))
    assert all(one == seen[0] for one in seen)


def test_an_answer_comes_whatever_the_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = log(tmp_path)
    for line in (
        [path, "SELECT 7 AS n", "--format", "json"],
        [path, "--format", "json", "SELECT 7 AS n"],
    ):
        assert sql.main([str(word) for word in line]) == 0
        assert capsys.readouterr().out == '[\n{"n": 7}\n]\n'


def log(folder: Path) -> Path:
    con = duckdb.connect()
    support.create_tables(con, support.events_of("scheduler"))
    con.execute("INSERT INTO SCHEDIN VALUES (5, 0, 1, 10, 120, 10)")
    names = [(10, "\x1b]0;evil\x07\x9b31m\u202ex", 0, None)]
    return support.write_log(con, folder / "x.klog-parquet", processes=names, end=1000)


@pytest.mark.parametrize("form", ["table", "csv", "json"])
def test_names_do_not_act_on_a_terminal(tmp_path: Path, form: str) -> None:
    ours, theirs = pty.openpty()
    words = [
        sys.executable,
        "-m",
        "klogger.cli.sql",
        str(log(tmp_path)),
        "SELECT comm(10, 5) AS name",
        "--format",
        form,
    ]
    done = subprocess.run(
        words,
        stdout=theirs,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "TERM": "dumb"},
        check=True,
    )
    os.close(theirs)
    shown = os.read(ours, 4096).decode()
    os.close(ours)
    assert done.returncode == 0 and "evil" in shown
    assert [c for c in shown if not c.isprintable() and c not in "\r\n"] == []


def test_messages_do_not_act_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    complain(Failure("no event '\x1b[31m\u202e'", help="see\x07"))
    assert capsys.readouterr().err == "klogger: no event '\ufffd[31m\ufffd'\n  help: see\ufffd\n"


@pytest.mark.parametrize(("mode", "made"), [(0o600, 0o600), (0o640, 0o640), (0o644, 0o644)])
def test_what_is_made_of_a_log_is_as_private(tmp_path: Path, mode: int, made: int) -> None:
    source, page = tmp_path / "x.klog", tmp_path / "x.html"
    source.touch()
    source.chmod(mode)
    before = os.umask(0o022)
    try:
        private_as(source)
        write(page, b"")
    finally:
        os.umask(before)
    assert page.stat().st_mode & 0o777 == made


def test_a_strangers_link_is_not_followed(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make a stranger's link")
    # In a folder of root alone he could not have made it.
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    victim, page = tmp_path / "victim", shared / "x.html"
    victim.write_text("precious")
    page.symlink_to(victim)
    os.chown(page, 65534, 65534, follow_symlinks=False)
    with pytest.raises(Failure, match="a link of user"):
        write(page, b"page")
    assert victim.read_text() == "precious"
    os.chown(page, 0, 0, follow_symlinks=False)
    write(page, b"page")
    assert victim.read_text() == "page"


# Why these programs have no `--format json`.
WITHOUT_JSON = {
    "mcp": "speaks JSON anyway",
    "guest": "prints what the command in the guest prints",
    "dkms": "prints the name of the package that it made",
}


def test_each_program_has_json_or_a_reason_why_not() -> None:
    lists = tomllib.loads((support.ROOT / "python/pyproject.toml").read_text())["tool"]["klogger"]
    names = {**lists["analyses"], **lists["elsewhere"]}
    found = (
        analysis, bench, collect, compare, dataset, report, sql, stopwatch, study, top,
        verify, watch, why,
    )  # fmt: skip
    modules = {module.__name__.rpartition(".")[2]: module for module in found}
    assert set(names) == modules.keys() | WITHOUT_JSON.keys()
    for module in found:
        help = module.parser().format_help()
        assert re.search(r"--format [{A-Za-z,]*json", help), module.__name__
        assert "--messages {text,json}" in help, module.__name__


def test_messages_as_json(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Set, so that what the option leaves behind is undone.
    monkeypatch.setenv("KLOGGER_MESSAGES", "text")
    words = ["nowhere.klog", "--format", "json", "--messages", "json"]
    assert report.main(words) == 2
    complain("a warning \x1b[2J")
    found = capsys.readouterr()
    error, note = map(json.loads, found.err.splitlines())
    assert found.out == ""
    assert error["message"] == "error" and "nowhere.klog" in error["text"] and "help" in error
    assert note == {"message": "note", "text": "a warning \x1b[2J"}


PAGES = {name: LINES[name] for name in ("report", "compare", "stopwatch", "study", "bench")}


@pytest.mark.parametrize(
    ("parser", "words"),
    [
        *(pytest.param(parser, [*words, "--html"], id=name)
          for name, (parser, words, _) in PAGES.items()),
        pytest.param(why.parser, ["x.klog", "--html"], id="why"),
        pytest.param(why.parser, ["x.klog", "--report"], id="why --report"),
        pytest.param(watch.parser, ["--report"], id="watch"),
        pytest.param(sql.parser, ["x.klog", "-o"], id="sql"),
    ],
)  # fmt: skip
def test_a_dash_is_no_output(
    parser: Callable[[], argparse.ArgumentParser],
    words: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A file of that name was written."""
    with pytest.raises(SystemExit) as ended:
        parser().parse_intermixed_args([*words, "-"])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.endswith(
        "'-' is no file\n  help: /dev/stdout is the standard output, ./- a file of that name\n"
    )
    args = vars(parser().parse_intermixed_args([*words, "./-"]))
    assert Path("-") in args.values()
