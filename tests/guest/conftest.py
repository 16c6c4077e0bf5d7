# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A guest with Debian's kernel, booted by scripts/guest."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="session")
def guest(klogger, workloads):
    """Runs a shell script in a fresh guest; what it leaves in /out is in the folder."""
    cache = os.environ.get("KLOGGER_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "klogger"
    )
    if not Path(cache, "guest/complete").exists():
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
        options = [
            "--timeout",
            str(timeout),
            "--memory",
            memory,
            "--append",
            append,
            "--out",
            out,
            *added,
        ]
        options += ["--single"] if single else []
        options += ["--kernel", kernel] if kernel else []
        return subprocess.run(
            [ROOT / "scripts/guest", *options, "--", "sh", "-c", script],
            check=False,
            capture_output=True,
            text=True,
            env={**os.environ, "KLOGGER": str(klogger), "KLOGGER_CACHE": cache},
            timeout=timeout + 60,
        )

    return run
