# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`klogger top --html` of a real recording, in a browser: pictures that change while it runs; and
nothing is left, however it ends.
"""

import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "python" / "tests"))

import browser  # noqa: E402

# Long enough for any machine; what is waited for comes, or the test fails.
PATIENCE = 180
ENDLESS = 1_000_000_000


class Top:
    """`klogger top --html`, with its files in a folder of its own."""

    def __init__(self, klogger, place, *words):
        self.folder = place / "private"
        self.folder.mkdir()
        env = {
            **os.environ, "KLOGGER": str(klogger), "KLOGGER_SCHEMATA": str(ROOT / "schemata"),
            "TMPDIR": str(self.folder),
        }  # fmt: skip
        self.errors = (place / "errors").open("w+")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "klogger_lab.cli.top", "--html", *map(str, words)],
            env=env, text=True, stdout=subprocess.PIPE, stderr=self.errors, start_new_session=True,
        )  # fmt: skip
        self.url = self.process.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{32}/", self.url), self.said()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end(signal.SIGTERM)
        self.process.stdout.close()
        self.errors.close()

    def end(self, number):
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(PATIENCE)

    def said(self):
        self.errors.seek(0)
        return self.errors.read()

    def descendants(self):
        """The recorder, and what it runs."""
        found, new = set(), {self.process.pid}
        while new:
            found |= new
            new = {child for pid in new for child in children(pid)} - found
        return found - {self.process.pid}


def children(pid):
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return {int(w) for t in tasks for w in (t / "children").read_text().split()}
    except OSError:
        return set()


def wait(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.full("takes more than 3 s")
def test_pictures_of_a_recording_change_while_it_runs(klogger, workloads, tmp_path):
    if browser.program() is None:
        pytest.skip("no chromium here to open the page in")
    # Some thousand events a second, so that the next frame comes soon, also on a busy machine.
    command = [workloads / "turns", ENDLESS, 300]
    with (
        Top(klogger, tmp_path, "--window", "2s", "--", *command) as top,
        browser.Browser(tmp_path) as page,
    ):
        page.visit(top.url, 1280, 900)
        page.wait("klogger.frame && klogger.frame.sections.length === 3")
        page.wait("[...klogger.pictures.values()].every((one) => one.drawn > 0)")
        assert page.ask("klogger.pictures.size") == 3
        assert "turns" in page.ask("document.querySelector('#quanta svg').textContent")
        before = page.ask("JSON.stringify(klogger.pictures.get('quanta').view.data('rows'))")
        frames = page.ask("klogger.frames")
        page.wait(f"klogger.frames > {frames} + 1")
        # A later frame is of other events.
        page.wait(
            f"JSON.stringify(klogger.pictures.get('quanta').view.data('rows')) !== {before!r}"
        )
        assert page.ask("document.querySelectorAll('#quanta svg.marks').length") == 1
        rows = page.ask(
            "[...document.querySelectorAll('#quanta table.answer tbody tr')]"
            ".map((r) => r.cells[0].textContent)"
        )
        assert "turns" in rows
        # An analysis that was not run until now.
        page.ask("document.querySelector('#top-menu input[value=wakers]').click()")
        page.wait("document.querySelector('#wakers svg.marks')")
        assert page.complaints == []
        origin = "performance.getEntriesByType('resource').map((one) => one.name)"
        assert all(name.startswith((top.url, "data:")) for name in page.ask(origin))
        # Of a recording that ends, the page says so.
        assert top.end(signal.SIGINT) == 130, top.said()
        page.wait("document.getElementById('top-age').textContent === 'ended'")
    assert list(top.folder.iterdir()) == []


@pytest.mark.full("takes more than 3 s")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP, signal.SIGTERM])
def test_nothing_is_left(klogger, workloads, tmp_path, number):
    command = [workloads / "pingpong", ENDLESS, "processes", 0]
    with Top(klogger, tmp_path, "--window", "1s", "--", *command) as top:
        with urllib.request.urlopen(top.url, timeout=PATIENCE) as answer:
            assert answer.status == 200
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(top.url[:-2] + "/", timeout=PATIENCE)
        started = top.descendants()
        assert started
        assert top.end(number) == 130, top.said()
        wait(lambda: not any(Path(f"/proc/{pid}").exists() for pid in started))
        assert list(top.folder.iterdir()) == []
        with pytest.raises(urllib.error.URLError):
            urllib.request.urlopen(top.url, timeout=PATIENCE)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--port", "80", "-a"], "--port is for the page"),
        (["--html", "--once", "-a"], "--html and --once contradict each other"),
        (["--html", "--port", "65536", "-a"], "--port 65536: a port is a number from 0 to 65535"),
        (["--html", "--analysis", "quant", "--", "sleep", "100"], "no analysis 'quant'"),
    ],
)
def test_what_cannot_be_is_said(klogger, words, said):
    done = subprocess.run(
        [sys.executable, "-m", "klogger_lab.cli.top", *words],
        env={**os.environ, "KLOGGER": str(klogger), "KLOGGER_SCHEMATA": str(ROOT / "schemata")},
        capture_output=True, text=True, check=False, timeout=PATIENCE,
    )  # fmt: skip
    assert done.returncode == 2
    assert f"klogger: {said}" in done.stderr
