# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""docs/gallery.md: each section has what scripts/gallery needs, and its picture."""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path

from klogger.cli import report
from klogger_lab.cli import guest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "gallery.md").read_text()
SECTIONS = runpy.run_path(str(ROOT / "scripts" / "gallery"))["SECTION"].findall(PAGE)


def test_each_section_has_two_commands_a_sentence_and_a_picture() -> None:
    assert len(SECTIONS) == PAGE.count("\n## ") == PAGE.count("\n![") == 10
    for recording, reporting, sentence, name in SECTIONS:
        assert sentence.startswith("> ") and len(sentence) > 30, name
        options = report.parser().parse_args(shlex.split(reporting)[2:])
        assert options.analysis == [name] and str(options.png) == "."
        assert options.file in shlex.split(recording)
        assert list(ROOT.glob(f"schemata/*/analyses/{name}.sql")), name
        # A PNG's header has its width and height.
        head = (ROOT / "docs" / "gallery" / f"{name}.png").read_bytes()[:24]
        width, height = (int.from_bytes(head[at : at + 4], "big") for at in (16, 20))
        assert head[1:4] == b"PNG" and 1000 < width < 2000 and 200 < height < 1700, name


def test_a_guest_takes_the_options_and_the_workloads_exist() -> None:
    for recording, *_ in SECTIONS:
        words = shlex.split(recording)
        at = words.index("--")
        _, unknown = guest.parser().parse_known_args(words[2:at])
        assert unknown == []
        assert (ROOT / words[at + 1]).is_file()


def test_no_picture_is_left_over() -> None:
    shown = set(re.findall(r"gallery/([a-z_]+)\.png", PAGE))
    assert {path.stem for path in (ROOT / "docs" / "gallery").iterdir()} == shown
