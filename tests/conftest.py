# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the live and the guest tests share: the klogger under test, the workloads, and a place for
logs.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def klogger() -> Path:
    """The program under test: $KLOGGER, or the one on the PATH."""
    found = os.environ.get("KLOGGER") or shutil.which("klogger")
    if not found:
        pytest.skip(
            "there is no klogger to test: build it with 'make build', or name it in KLOGGER"
        )
    return Path(found).resolve()


@pytest.fixture(scope="session")
def workloads(tmp_path_factory) -> Path:
    """The folder of the programs made from tests/workloads."""
    made = tmp_path_factory.mktemp("workloads")
    subprocess.run(["make", "-s", "-C", ROOT / "tests/workloads", f"OUT={made}"], check=True)
    return made
