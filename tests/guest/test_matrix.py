# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Every bundled schema is loaded and attached on every kernel that Debian has now.

And `klogger check --kernel` says so before.
"""

import json
import subprocess

import pytest
from kernels import ROOT, debian
from oracles import Log
from tiers import SLOW

pytestmark = pytest.mark.full("boots guests of its own")

SCHEMATA = sorted(path.name for path in (ROOT / "schemata").iterdir())
# While all timers of the guest's start-up still run, and some of the workload's own.
SCRIPT = """
uname -r >/out/kernel
for schema in $SCHEMATA; do
    klogger record -s $schema -o /out/$schema.klog --no-calibrate \\
        -- sh -c 'sleep 0.1; sleep 0.1' 2>/out/$schema.err
    echo $? >/out/$schema.code
done
"""


def names() -> list[str]:
    """Asks Debian's mirror, so only in a run that has a use for them."""
    if not SLOW:
        return []
    listed = subprocess.run(
        [ROOT / "scripts/debian-kernel", "list"], check=False, capture_output=True, text=True
    )
    return [line.split()[0] for line in listed.stdout.splitlines() if not line.startswith(" ")]


def said_absent(klogger, image) -> dict[str, set[str]]:
    """The events of each schema that `klogger check` says will be missing on a kernel."""
    command = [klogger, "check", "--format", "json", "--kernel", image, *SCHEMATA]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    found = {}
    for schema, answer in zip(SCHEMATA, json.loads(done.stdout), strict=True):
        probes = [probe for probe in answer["probes"] or [] if not probe["attaches"]]
        found[schema] = {event for probe in probes for event in probe["events"]}
    return found


@pytest.mark.nightly("boots all of Debian's kernels")
@pytest.mark.parametrize("name", names() or ["none"])
def test_all_schemata_attach(guest, klogger, tmp_path, name):
    image, reason = (
        debian(name) if name != "none" else (None, "no kernel: see scripts/debian-kernel")
    )
    if image is None:
        pytest.skip(reason)
    absent = said_absent(klogger, image)
    # Some tracepoints came after 6.12, some system calls after 6.6.
    assert {schema for schema, events in absent.items() if events} <= {"switching", "futex"}
    done = guest(f"SCHEMATA='{' '.join(SCHEMATA)}'\n{SCRIPT}", tmp_path, timeout=900, kernel=image)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "kernel").read_text().startswith(name.removesuffix("-rt") + ".")
    for schema in SCHEMATA:
        assert (tmp_path / f"{schema}.code").read_text() == "0\n", (
            tmp_path / f"{schema}.err"
        ).read_text()
        log = Log(klogger, tmp_path / f"{schema}.klog")
        missing = log.rows("SELECT DISTINCT event FROM ledger WHERE key = 'probe_not_attached'")
        assert {event for (event,) in missing} == absent[schema], schema
    # Whether the kernel passes the time or a pointer to it: read the wrong way, it is never or
    # always too late.
    causes = Log(klogger, tmp_path / "causes.klog")
    assert causes.count("HRT_IN", "late > 0 AND late < 4294967295") > 0
