# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Small logs without the recorder, and what tests need beside them."""

from __future__ import annotations

from pathlib import Path

from klogger.smalllog import (
    Event,
    create_tables,
    decodings_of,
    empty_log,
    events_of,
    field_of,
    insert,
    shown,
    sql_type,
    write_log,
)

__all__ = [
    "Event",
    "create_tables",
    "decodings_of",
    "empty_log",
    "events_of",
    "field_of",
    "insert",
    "shown",
    "sql_type",
    "write_log",
]
ROOT = Path(__file__).resolve().parents[2]
SCHEMATA = ROOT / "schemata"


def schemata() -> list[str]:
    """The bundled ones."""
    return sorted(p.parent.name for p in SCHEMATA.glob("*/*.klogger") if p.stem == p.parent.name)


def own_analysis(folder: Path, name: str, text: str) -> str:
    """Puts an analysis beside a schema `mine` of the user's own, and returns the schema's file."""
    analyses = folder / "mine" / "analyses"
    analyses.mkdir(parents=True)
    (analyses / f"{name}.sql").write_text(text)
    return str(folder / "mine" / "mine.klogger")
