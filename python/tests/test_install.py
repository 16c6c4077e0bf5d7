# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What a wheel contains, that it is whole in an environment of its own, and which Python installed
commands use. tests/guest/test_packaging.py has 'make install'.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from klogger.program import find_klogger

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / "python"
VERSION = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


def run(*words: object, **more: object) -> str:
    done = subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, check=False, **more
    )  # type: ignore[call-overload]
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the program, as scripts/wheel makes it."""
    out = tmp_path_factory.mktemp("wheel")
    env = {**os.environ, "KLOGGER_WHEEL_PROGRAM": str(Path(find_klogger()).resolve())}
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-w", out]
    run(*pip, PYTHON, env=env)
    (made,) = out.iterdir()
    return made


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new one, in which the wheel is installed. The libraries that it needs are those of the
    tests' own environment, in which only their files are seen, not this checkout.
    """
    place = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", place)
    python = place / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index"]
    run(*pip, wheel)
    own = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    (own / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return place


def runs_on(program: str) -> str:
    """The tag for the newest version of the C library's symbols that the program names."""
    said = run("readelf", "--wide", "--version-info", Path(program).resolve())
    needs = said[said.index("Version needs section") :]
    versions = re.findall(r"Name: GLIBC_(\d+)\.(\d+)", needs)
    return "manylinux_{}_{}_{}".format(*max((int(a), int(b)) for a, b in versions), os.uname()[4])


@pytest.mark.full("6 s: builds a wheel")
def test_the_wheel_has_everything(wheel: Path) -> None:
    assert wheel.name == f"klogger-{VERSION}-py3-none-{runs_on(find_klogger())}.whl"
    with zipfile.ZipFile(wheel) as content:
        names = set(content.namelist())
    kinds = ("analyses/*.sql", "expect/*.expect", "studies/*.py", "studies/*.[ch]", "workload")
    found = [path for kind in kinds for path in ROOT.glob(f"schemata/*/{kind}")]
    assert found and {f"klogger/{path.relative_to(ROOT)}" for path in found} <= names
    packages = [
        path for package in ("klogger", "klogger_lab") for path in PYTHON.glob(f"{package}/**/*")
    ]
    files = {str(path.relative_to(PYTHON)) for path in packages if path.is_file()}
    assert {name for name in files if "__pycache__" not in name} <= names
    assert {f"klogger-{VERSION}.data/scripts/klogger", "klogger/page/vega.js"} <= names
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyc")]


def test_the_lock_has_a_version_of_each_requirement() -> None:
    """Which the wheel's ranges contain."""
    locked = dict(
        re.findall(r"^([\w.-]+)==(\d+\.\d+)", (PYTHON / "requirements.lock").read_text(), re.M)
    )
    project = tomllib.loads((PYTHON / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    brought = [*extras["lab"], *extras["pandas"], *extras["png"]]
    for wanted in (*project["dependencies"], *brought):
        found = re.fullmatch(r"([\w-]+)>=([\d.]+),<(\d+)", wanted)
        assert found is not None, wanted
        name, low, high = found.groups()
        version = tuple(map(int, locked[name].split(".")))
        assert tuple(map(int, low.split("."))) <= version < (int(high),), wanted
    assert extras["all"] == ["klogger[lab,pandas,png]"]
    assert "klogger[all]" in extras["test"]
    for wanted in extras["test"]:
        assert wanted in locked or wanted == "klogger[all]"


@pytest.mark.full("10 s: makes an environment, and installs a wheel in it")
def test_an_environment_of_its_own_is_whole(environment: Path, tmp_path: Path) -> None:
    shutil.copy(ROOT / "tests" / "logs" / "v2.klog", tmp_path / "x.klog")
    env = {"PATH": f"{environment}/bin:/usr/bin:/bin", "HOME": str(tmp_path)}
    query = "SELECT count(*) AS n FROM event"
    found = run("klogger", "sql", "x.klog", query, "--format", "json", cwd=tmp_path, env=env)
    assert json.loads(found) == [{"n": 10}]
    listed = run("klogger", "study", cwd=tmp_path, env=env)
    assert "quanta" in listed and "timer" in listed
    asked = (
        "from klogger import analysis; print(analysis.__file__, analysis.find([{'name':"
        " 'scheduler'}]))"
    )
    found = run("python", "-c", asked, cwd=tmp_path, env=env)
    assert found.startswith(str(environment)) and "wakeup_latency" in found
    version = "from importlib.metadata import version; print(version('klogger'))"
    assert run("python", "-c", version, env=env) == f"{VERSION}\n"


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that other users can read; pytest's own are private."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def chosen(folder: Path, *python: object) -> Path:
    program = ROOT / "packaging" / "public-python"
    return Path(run(sys.executable, program, folder / "copy", *python).strip())


def runs(python: Path, *prefix: str) -> str:
    asked = "import ctypes, json, sys, zlib; print(sys.prefix, sys.version_info[:2])"
    return run(*prefix, python, "-I", "-c", asked, cwd="/", env={"PATH": "/usr/bin:/bin"})


def test_commands_get_a_python_that_all_users_can_run(public: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    assert runs(chosen(public), *NOBODY)


def test_a_private_python_is_copied(public: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("who is not root installs for himself, with the Python that there is")
    private = public / "private"
    copied = run(
        sys.executable, "-c", COPY, ROOT / "packaging" / "public-python", private / "python"
    ).strip()
    private.chmod(0o700)
    assert chosen(public, copied) == public / "copy" / "bin" / "python3"
    version = f"({sys.version_info[0]}, {sys.version_info[1]})"
    assert runs(public / "copy" / "bin" / "python3", *NOBODY) == f"{public}/copy {version}\n"


# A Python that is in no folder of the system: a copy of the one that runs this.
COPY = """
import runpy, sys
from pathlib import Path
program = runpy.run_path(sys.argv[1])
print(program["copy"](program["facts"](sys.executable), Path(sys.argv[2])))
"""


def test_what_is_no_python(tmp_path: Path) -> None:
    program = ROOT / "packaging" / "public-python"
    done = subprocess.run(
        [sys.executable, program, tmp_path / "copy", "/bin/true"],
        capture_output=True,
        text=True,
        check=False,
    )
    said = "/bin/true is not a Python of version 3.11 or later\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", said)
    assert not (tmp_path / "copy").exists()
