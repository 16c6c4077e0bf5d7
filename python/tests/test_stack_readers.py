# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The exports that are made of stacks, as the programs read them for which they are: `go tool
pprof`, the Firefox Profiler's command, and speedscope's own page in a browser. inferno reads folded
stacks in crates/cli/tests/flame.rs.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import browser
import pytest
from test_stacks import bare, exported, sampled

pytestmark = pytest.mark.full("the files are read in the gate as their formats say")

CACHE = Path(os.environ.get("KLOGGER_CACHE") or Path.home() / ".cache/klogger")
READERS = CACHE / "readers/node_modules"
SPEEDSCOPE = READERS / "speedscope/dist/release/index.html"
FIREFOX = READERS / "@firefox-devtools/profiler-cli/dist/profiler-cli.js"
BRINGS = "'scripts/setup test' brings it, if there is npm"
NS = {"ns": 1, "µs": 1000, "ms": 1000_000}
# As its table of functions reads: the whole time, that of the function itself, its name.
ROW = re.compile(
    r"^([\d.]+)(ns|µs|ms) \([<\d.]+%\)\s+[\d.]+(?:ns|µs|ms) \([<\d.]+%\)\s+(.+)$", re.M
)


def totals(*marks: str) -> dict[str, dict[str, int]]:
    """The time of all stacks with a function, by thread and by function."""
    found: dict[str, Counter[str]] = {}
    for (thread, *path), (_, weight) in bare(*marks).items():
        for name in set(path):
            found.setdefault(thread, Counter())[name] += weight
    return {thread: dict(names) for thread, names in found.items()}


def test_pprof_has_the_time_of_each_function(tmp_path: Path) -> None:
    if shutil.which("go") is None:
        pytest.skip("no go tool pprof here")
    file = exported(sampled().write(tmp_path / "x.klog"), "pprof")
    words = ["go", "tool", "pprof", "-top", "-unit=ns", "-nodefraction=0", "-sample_index=cpu"]
    done = subprocess.run(
        [*words, file], capture_output=True, text=True, check=False, timeout=240,
        env={**os.environ, "HOME": str(tmp_path), "PPROF_TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"^ *\d+(?:ns)? +\S+% +\S+% +(\d+)(?:ns)? +\S+% +(.+)$", done.stdout, re.M)
    expected: Counter[str] = Counter()
    for names in totals("_[k]", "_[i]").values():
        expected.update(names)
    assert {name.removesuffix(" (inline)"): int(ns) for ns, name in rows} == expected
    assert "File: prog" in done.stdout


@pytest.fixture
def firefox(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Runs the command with these words; gives what it prints. Its files are in a folder of their
    own with a short path, as there is a socket among them.
    """
    if shutil.which("node") is None or not FIREFOX.exists():
        pytest.skip(f"no command of the Firefox Profiler here: {BRINGS}")
    with tempfile.TemporaryDirectory(prefix="klogger") as folder:
        own = {**os.environ, "HOME": str(tmp_path), "PROFILER_CLI_SESSION_DIR": folder}

        def run(*words: str | Path) -> str:
            done = subprocess.run(
                ["node", FIREFOX, *words], capture_output=True, text=True, check=False,
                timeout=240, env=own, cwd=tmp_path,
            )  # fmt: skip
            assert done.returncode == 0, done.stdout + done.stderr
            return done.stdout

        try:
            yield run
        finally:
            run("stop", "--all")


def test_the_firefox_profiler_has_the_time_of_each_function(
    tmp_path: Path, firefox: Callable[..., str]
) -> None:
    file = exported(sampled().write(tmp_path / "x.klog"), "firefox")
    firefox("load", file.rename(tmp_path / "x.json"))
    about = json.loads(firefox("profile", "info", "--json", "--all"))
    (process,) = about["processes"]
    assert (process["name"], process["pid"]) == ("prog", "10")
    expected = totals("_[k]", "_[i]")
    assert [thread["name"] for thread in process["threads"]] == list(expected)
    for thread in process["threads"]:
        words = ["functions", "--json", "--include-idle", "--limit", "0"]
        said = json.loads(firefox("thread", *words, "--thread", thread["threadHandle"]))
        assert said["weightType"] == "tracing-ms"
        found = {one["name"]: round(one["totalSamples"] * 1e6) for one in said["functions"]}
        assert found == expected[thread["name"]]
    # Marks are in the first thread.
    first = process["threads"][0]["threadHandle"]
    markers = json.loads(firefox("thread", "markers", "--json", "--list", "--thread", first))
    assert "here" in json.dumps(markers)


def shown(page: browser.Browser) -> dict[str, int]:
    """What is in its table of functions; those of one name in several places are several rows."""
    text = re.sub(r"\n\t?", " ", page.ask("document.body.innerText"))
    rows = re.sub(r" (?=[\d.]+(?:ns|µs|ms) \([<\d.]+%\) {1,2}[\d.]+(?:ns|µs|ms))", "\n", text)
    found: Counter[str] = Counter()
    for time, unit, name in ROW.findall(rows):
        found[name.strip()] += round(float(time) * NS[unit])
    return dict(found)


def test_speedscope_shows_the_time_of_each_function(tmp_path: Path) -> None:
    """Its own page reads the file as its own command passes it: as a script."""
    if browser.program() is None:
        pytest.skip("no chromium here to open the page in")
    if not SPEEDSCOPE.exists():
        pytest.skip(f"no speedscope here: {BRINGS}")
    file = exported(sampled().write(tmp_path / "x.klog"), "speedscope")
    data = base64.b64encode(file.read_bytes()).decode()
    script = tmp_path / "x.js"
    script.write_text(f"speedscope.loadFileFromBase64('x.speedscope.json', '{data}')")
    expected = totals("_[i]")
    with browser.Browser(tmp_path) as page:
        page.size(1400, 900)
        page.call("Page.navigate", url=f"{SPEEDSCOPE.as_uri()}#localProfilePath={script}")
        page.wait("document.title.startsWith('SAMPLED')")
        # The table of functions, then the same of the next thread.
        page.key("3")
        for number, thread in enumerate(("prog", "worker"), start=1):
            page.wait(f"document.body.innerText.includes('({number}/2)')")
            page.wait("document.body.innerText.includes('Symbol Name')")
            assert f"{thread} (" in page.ask("document.body.innerText")
            assert shown(page) == expected[thread]
            page.key("n")
