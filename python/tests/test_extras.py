# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Without the libraries that few commands need, all others work, and these few say what to type."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest
import support

import klogger
from klogger import extras
from klogger.cli import report
from klogger_lab.cli import guest, stopwatch, study

LIBRARIES = [one for one in vars(extras).values() if isinstance(one, extras.Library)]
# In a process in which they cannot be imported: all that is in the packages, but the module of
# outliers; and a report of a log, with its page.
WITHOUT = """
import importlib, pkgutil, sys
for name in sys.argv[3].split():
    sys.modules[name] = None
import klogger, klogger_lab
for package in (klogger, klogger_lab):
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if "outliers" not in found.name:
            importlib.import_module(found.name)
from klogger import vega
from klogger.cli import report
# Which a wheel has, and a checkout makes with one of the libraries.
vega.script = lambda: "var vega"
sys.exit(report.main([sys.argv[1], "--html", sys.argv[2]]))
"""


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Callable[[extras.Library], None]:
    """As if a library were not installed."""
    return lambda library: monkeypatch.setitem(sys.modules, library.module, None)


def test_extras_are_those_of_the_package() -> None:
    listed = tomllib.loads((support.ROOT / "python/pyproject.toml").read_text())["project"]
    for library in LIBRARIES:
        (wanted,) = listed["optional-dependencies"][library.extra]
        assert re.match(r"[\w-]+", wanted)[0] == library.name  # type: ignore[index]
        assert not [one for one in listed["dependencies"] if one.startswith(library.name)]
        assert library.name in metadata.packages_distributions()[library.module]


def test_all_else_works_without_them(small_log: Path, tmp_path: Path) -> None:
    page = tmp_path / "x.html"
    lacking = " ".join([*(one.module for one in LIBRARIES), "altair"])
    words = [sys.executable, "-c", WITHOUT, small_log, page, lacking]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "quanta" in done.stdout and "var vega" in page.read_text()


@pytest.mark.parametrize(
    ("library", "main", "words"),
    [
        (extras.GUEST, guest.main, ["--", "true"]),
        (extras.PICTURES, report.main, ["x.klog", "--png", "pictures"]),
        (extras.PICTURES, study.main, ["quanta", "--png", "pictures"]),
        (extras.PICTURES, stopwatch.main, ["tracepoint a", "tracepoint b", "--png", "x", "-a"]),
        (extras.OUTLIERS, report.main, ["runs", "--find", "outliers"]),
    ],
)
def test_who_needs_one_says_what_to_type(
    library: extras.Library, main: Callable[[list[str]], int], words: list[str],
    without: Callable[[extras.Library], None], capsys: pytest.CaptureFixture[str],
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Before anything is recorded or read."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.klog").touch()
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "dataset.json").touch()
    without(library)
    assert main(words) == 2
    said = capsys.readouterr().err
    assert f"needs the Python library {library.name}\n" in said
    assert said.endswith(f"  help: pip install 'klogger[{library.extra}]'\n")


def test_a_notebook_has_the_table_without_the_picture(
    small_log: Path, without: Callable[[extras.Library], None]
) -> None:
    with klogger.open(small_log) as log:
        quanta = log.report("quanta")["quanta"]
    assert "<svg" in quanta._repr_html_()
    without(extras.PICTURES)
    shown = quanta._repr_html_()
    assert "pip install" in shown and "<table>" in shown and "<svg" not in shown
    without(extras.FRAMES)
    with pytest.raises(klogger.Failure, match=r"a DataFrame needs .*pandas"):
        quanta.df()
