# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The bundled schemata can be recorded together, and each brings what a schema should."""

import re
from collections import Counter
from pathlib import Path

import pytest

SCHEMATA = Path(__file__).resolve().parents[2] / "schemata"
FOLDERS = sorted(path.parent for path in SCHEMATA.glob("*/*.klogger"))
TEXTS = {".klogger", ".shared"}
DECODING = re.compile(r"^(enum|flags) (\w+) \{([^}]*)\}", re.M)
EVENT = re.compile(r"^event (\w+)", re.M)
# Those before each analysis had a name of its own.
SHARED = {"calls", "cycles", "league"}


def test_events_have_different_names():
    """Else they cannot be recorded at the same time."""
    names = Counter(
        name
        for folder in FOLDERS
        for name in EVENT.findall((folder / f"{folder.name}.klogger").read_text())
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_a_name_of_texts_has_the_same_texts_everywhere():
    """Else they cannot be recorded at the same time."""
    found = {}
    for folder in FOLDERS:
        text = "\n".join(path.read_text() for path in folder.iterdir() if path.suffix in TEXTS)
        for kind, name, values in DECODING.findall(text):
            found.setdefault(name.lower(), {})[kind, " ".join(values.split())] = folder.name
    assert {name: list(all.values()) for name, all in found.items() if len(all) > 1} == {}
    assert {"how_opened", "futex_op"} <= found.keys()


def test_analyses_have_different_names():
    """`--analysis NAME` means one of them."""
    names = Counter(path.stem for path in SCHEMATA.glob("*/analyses/*.sql") if path.stem[0] != "_")
    assert {name for name, count in names.items() if count > 1} == SHARED


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_an_analysis_has_an_expectation(folder):
    given = {path.stem.partition("-")[0] for path in folder.glob("expect/*.expect")}
    analyses = {path.stem for path in folder.glob("analyses/*.sql") if path.stem[0] != "_"}
    assert analyses - given == set()
