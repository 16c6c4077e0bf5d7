# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Guests, booted by scripts/guest, and what is built for them: once, however many tests use it."""

import fcntl
import importlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from boots import Boots
from kernels import BUILT, HERE, ROOT, cache, headers, image, kernel, run


def boot_of(nodeid: str) -> str:
    """The boot that a test's file shares with others, or the file."""
    module = importlib.import_module(Path(nodeid.split("::", maxsplit=1)[0]).stem)
    cases = getattr(module, "CASES", None)
    return next(iter(cases.values())).boot.name if cases else module.__name__


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Tests that share a boot, and those of one file, have the same worker."""
    from xdist.scheduler import LoadScopeScheduling

    class OneWorkerForABoot(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return boot_of(nodeid)

    return OneWorkerForABoot(config, log)


@pytest.fixture(scope="session")
def guest(klogger, workloads):
    """Runs a shell script in a fresh guest; what it leaves in /out is in the folder."""
    if not (cache() / "guest/complete").exists():
        pytest.skip("no kernel for a guest: run 'scripts/setup guest'")

    def run(
        script: str,
        out: Path,
        *,
        timeout: int = 300,
        add=(),
        append="",
        memory="1G",
        single=False,
        kernel=None,
    ):
        added = []
        for path in [*sorted(workloads.iterdir()), *add]:
            added += ["--add", str(path)]
        options = ["--timeout", str(timeout), "--memory", memory, "--append", append]
        options += ["--out", out, *added]
        options += ["--single"] if single else []
        options += ["--kernel", kernel] if kernel else []
        return subprocess.run(
            [ROOT / "scripts/guest", *options, "--", "sh", "-c", script],
            check=False,
            capture_output=True,
            text=True,
            env={**os.environ, "KLOGGER": str(klogger), "KLOGGER_CACHE": str(cache())},
            timeout=timeout + 60,
        )

    return run


@pytest.fixture(scope="session")
def boots(request, guest, tmp_path_factory) -> Boots:
    """The boots that modules of tests share: `boots.case(NAME)` is what one of the cases left."""
    return Boots(request, guest, tmp_path_factory.mktemp("boots"), image)


@pytest.fixture(scope="session")
def once(tmp_path_factory) -> Callable[[str, Callable[[Path], None]], Path]:
    """Makes a folder by a function, once for all workers of this session."""
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def make(name: str, fill: Callable[[Path], None]) -> Path:
        made = base / name
        with (base / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not made.exists():
                part = base / f"{name}.part"
                shutil.rmtree(part, ignore_errors=True)
                part.mkdir()
                fill(part)
                part.rename(made)
        return made

    return make


@pytest.fixture(scope="session")
def modules(klogger, once) -> Callable[..., Path]:
    """A folder with klogger.ko and a module for each schema in BUILT, for a kernel."""

    def of(name: str = "debian") -> Path:
        _, tree = kernel(name)
        schemata = [word for schema in BUILT for word in ("-s", str(schema))]

        def build(made: Path):
            run([klogger, "build", *schemata, "--kernel", tree, "-o", made], made)
            for path in made.glob("*.ko"):
                # Line tables for debuggers would take most of a guest's memory.
                run(["strip", "--strip-debug", path], made)

        return once(f"modules-{name}", build)

    return of


@pytest.fixture(scope="session")
def own_module(klogger, modules, once) -> Callable[..., Path]:
    """A folder with the module that a folder of sources makes, which logs by calls of klogger's."""

    def of(source: Path, name: str = "debian") -> Path:
        _, tree = kernel(name)
        symbols = f"KBUILD_EXTRA_SYMBOLS={modules(name)}/Module.symvers"

        def build(made: Path):
            work = made / "work"
            shutil.copytree(source, work)
            for schema in work.glob("*.klogger"):
                run([klogger, "gen", "--engine", "kernel", schema.name, "-o", "."], work)
                shutil.copy(schema, made)
            said = run(
                ["make", "-C", tree, f"M={work}", symbols, "W=1", "modules"], work, whole=True
            )
            assert "warning" not in said, said
            for path in work.glob("*.ko"):
                shutil.copy(path, made)
            shutil.rmtree(work)

        return once(f"{source.name}-{name}", build)

    return of


@pytest.fixture(scope="session")
def abuse(once) -> Path:
    """The program that misuses the kernel engine's device."""

    def build(made: Path):
        include = f"-I{ROOT / 'runtime/include'}"
        words = ["cc", "-O1", "-Wall", "-static", "-pthread", include, HERE / "abuse.c"]
        run([*words, "-o", made / "abuse"], made)

    return once("abuse", build) / "abuse"


@pytest.fixture(scope="session")
def release() -> str:
    """Of the guest's kernel, whose headers are here."""
    return headers().name.removeprefix("linux-headers-")
