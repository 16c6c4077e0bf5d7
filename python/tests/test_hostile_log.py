# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A log of a stranger: whatever it brings along as text, the terminal shows it and does nothing
else with it.
"""

from __future__ import annotations

import os
import pty
import stat
import subprocess
from pathlib import Path

import pytest
from logfile import LogFile

from klogger.program import find_klogger

# Title of the window, colour by a C1 character, direction of the text, an own line, a bell.
EVIL = "\x1b]0;evil\x07\x9b31m\u202ex\n 0.000000000 0 FORGED\r\u2028"
FORMS = {
    "cat": ["cat"],
    "cat csv": ["cat", "--format", "csv"],
    "cat json": ["cat", "--format", "json"],
    "cat perl": ["cat", "--format", "perl"],
    "info": ["info"],
    "info fields": ["info", "--fields"],
    "info json": ["info", "--format", "json"],
    "no such event": ["cat", "--event", EVIL.replace("\n", " ")],
}


def log(path: Path) -> Path:
    made = LogFile()
    made.built_in("PROCESS_EXISTS")
    made.event(
        "A",
        "pid:i32:thread",
        "state:u32:states",
        "flags:u32:flags",
        "at:u64:code",
        "text:string",
        doc=EVIL,
    )
    for one in made.events[1]["fields"]:
        one |= {"unit": EVIL, "doc": EVIL, "type": EVIL}
    made.preamble = {
        "decodings": [
            {"name": "states", "flags": False, "values": [[1, EVIL]]},
            {"name": "flags", "flags": True, "values": [[1, EVIL], [2, "\x1b[2J"]]},
        ],
        "command_line": [EVIL], "workload": [EVIL], "scope": EVIL, "klogger": EVIL, "engine": EVIL,
        "host": {"name": EVIL, "kernel": EVIL, "cpu_model": EVIL, "cpus": [0],
                 "mitigations": [[EVIL, EVIL]]},
        "schemas": [{"name": EVIL, "doc": EVIL, "file": EVIL, "text": EVIL}],
        "probes": [{"schema": EVIL, "target": EVIL, "attached": False, "note": EVIL,
                    "events": [EVIL]}],
    }  # fmt: skip
    made.ledger = [{"key": EVIL, "severity": "loss", "count": 1, "event": EVIL, "text": EVIL}]
    made.add(0, 1, "PROCESS_EXISTS", pid=7, tgid=7, comm=EVIL.encode()[:15], command=b"x")
    made.add(0, 2, "A", pid=7, state=1, flags=3, at=1, text=EVIL.encode())
    return made.write(path)


@pytest.mark.parametrize("form", FORMS)
def test_nothing_acts_on_the_terminal(tmp_path: Path, form: str) -> None:
    ours, theirs = pty.openpty()
    words = [find_klogger(), FORMS[form][0], str(log(tmp_path / "x.klog")), *FORMS[form][1:]]
    # A pager would wait for a key.
    environment = {**os.environ, "KLOGGER_PAGER": ""}
    with subprocess.Popen(
        words, stdout=theirs, stderr=theirs, stdin=subprocess.DEVNULL, env=environment
    ) as process:
        os.close(theirs)
        shown = b""
        while part := read(ours):
            shown += part
    os.close(ours)
    text = shown.decode()
    assert process.returncode == (2 if form == "no such event" else 0), text
    assert "evil" in text
    assert [c for c in text if not c.isprintable() and c not in "\r\n"] == []
    # A table's texts may have lines, in quotes.
    assert form == "cat csv" or not [
        line for line in text.splitlines() if line.startswith(" 0.000000000 0 FORGED")
    ]


def read(terminal: int) -> bytes:
    """A terminal without a writer is an error."""
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""


@pytest.mark.parametrize("target", ["parquet", "json", "perfetto", "ctf"])
def test_an_export_is_as_private_as_its_log(tmp_path: Path, target: str) -> None:
    source, out = log(tmp_path / "x.klog"), tmp_path / "out"
    source.chmod(0o600)
    subprocess.run(
        [find_klogger(), "export", "--to", target, "-o", out, source],
        check=True,
        capture_output=True,
    )
    for path in [out, *out.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
