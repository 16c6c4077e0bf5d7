# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The wheel of `make wheel`: installed in an environment of its own with nothing else on the PATH,
it records and answers. python/tests/test_install.py looks at what is in it.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Of the whole environment, pip as well.
SIZE_MAX = 250_000_000
SYSTEM = "/usr/bin:/bin"

pytestmark = pytest.mark.full("installs libraries from the network: half a minute")


@pytest.fixture(scope="module")
def wheel(klogger, tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    make(klogger, folder)
    (made,) = folder.iterdir()
    return made


def make(klogger, folder):
    environment = {**os.environ, "KLOGGER": str(klogger)}
    words = [ROOT / "scripts/wheel", folder]
    subprocess.run(words, env=environment, check=True, capture_output=True)


def environment_with(folder, *packages):
    """A new Python environment; skips the test where packages cannot be had."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    words = [folder / "bin/pip", "install", "--quiet", *packages]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if "No matching distribution" in done.stderr or "Connection" in done.stderr:
        pytest.skip(f"no packages: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    return environment_with(tmp_path_factory.mktemp("environment"), wheel)


@pytest.fixture
def run(installed, tmp_path):
    def run(*words, path="", code=0):
        environment = {"PATH": f"{installed}/bin{path}", "HOME": str(tmp_path)}
        done = subprocess.run(
            words, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done.stderr
        return done

    return run


def taken(folder, *options):
    words = ["du", "-s", "-B1", *options, folder]
    return int(subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()[0])


def test_it_is_small(installed):
    assert taken(installed, "--apparent-size") <= SIZE_MAX
    assert taken(installed) <= SIZE_MAX


def test_it_records_and_answers(run, tmp_path):
    assert re.fullmatch(r"klogger \d+\.\d+\.\d+\n", run("klogger", "--version").stdout)
    done = run("klogger", "record", "-s", "scheduler", "--", "klogger", "--version")
    assert "nothing lost" in done.stderr, done.stderr
    assert "[quanta]" in run("klogger", "report", "scheduler.klog").stdout
    run("klogger", "report", "scheduler.klog", "--html", "x.html")
    assert "vegaEmbed" in (tmp_path / "x.html").read_text()
    assert " elapsed\n" in run("klogger", "why", "--", "klogger", "--version").stderr
    assert "wakeup_latency" in run("klogger", "report", "--list", "scheduler.klog").stdout
    assert "timer" in run("klogger", "study").stdout


def test_what_lacks_says_how_to_get_it(run):
    run("klogger", "record", "-s", "scheduler", "--", "klogger", "--version")
    for words, extra in (
        (["report", "scheduler.klog", "--png", "pictures"], "png"),
        (["guest", "--", "true"], "lab"),
    ):
        done = run("klogger", *words, code=2)
        assert done.stderr.endswith(f"  help: pip install 'klogger[{extra}]'\n"), done.stderr


def test_man_and_the_shells_find_it(run, installed):
    for page in ("klogger", "klogger-record", "klogger-schema-language"):
        found = run("man", "-w", page, path=f":{SYSTEM}").stdout
        assert found.startswith(f"{installed}/share/man/"), found
    for name in ("bash-completion/completions/klogger", "zsh/site-functions/_klogger"):
        assert (installed / "share" / name).is_file()


def test_its_tag_is_the_one_that_auditwheel_finds(wheel, tmp_path):
    audit = environment_with(tmp_path / "audit", "auditwheel") / "bin/auditwheel"
    done = subprocess.run([audit, "show", wheel], capture_output=True, text=True, check=True)
    tags = set(re.findall(r'"(manylinux_\d+_\d+_\w+)"', done.stdout))
    assert len(tags) == 1 and wheel.name.endswith(f"-py3-none-{tags.pop()}.whl"), done.stdout


def test_the_same_tree_is_the_same_file(klogger, wheel, tmp_path):
    make(klogger, tmp_path)
    (again,) = tmp_path.iterdir()
    assert again.name == wheel.name and again.read_bytes() == wheel.read_bytes()
