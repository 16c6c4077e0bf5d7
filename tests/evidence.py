# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What is kept of a test that failed: why, in one line, and the folder with its logs."""

import os
import shutil
import subprocess
from pathlib import Path

MOST_LOGS = 3
PATIENCE = 30


def why_failed(report) -> str:
    """The last thing that was said: the line of the exception, or of a text without one."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash else str(report.longrepr)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (lines[0] if crash else lines[-1])[:300] if lines else "nothing was said"


def folder_of(values: dict, base: Path) -> Path | None:
    """Where a test's files are, of the values of its fixtures: its own tmp_path, or what one of
    them has below `base`, the folder of the run.
    """
    if "tmp_path" in values:
        return values["tmp_path"]
    for value in values.values():
        for found in (value, getattr(value, "path", None), getattr(value, "dir", None)):
            if isinstance(found, Path) and base in found.parents and found.exists():
                return found if found.is_dir() else found.parent
    return None


def describe_logs(folder: Path) -> None:
    """Puts what `klogger info` says of each log beside it: NAME.klog.info."""
    klogger = os.environ.get("KLOGGER") or shutil.which("klogger")
    for log in sorted(folder.rglob("*.klog"))[:MOST_LOGS] if klogger else []:
        try:
            done = subprocess.run(
                [klogger, "info", log],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                check=False,
                timeout=PATIENCE,
            )
            log.with_name(log.name + ".info").write_bytes(done.stdout)
        except (OSError, subprocess.SubprocessError):
            continue
