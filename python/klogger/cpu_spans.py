# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Who ran where, and when: the table `klogger.cpu_span`, from the quanta of the schema `scheduler`.

Without that schema in the log, the table is empty. `spans` says when it is filled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb

from klogger import analysis, statements
from klogger.analysis import Analysis
from klogger.failure import Failure
from klogger.made import Made

if TYPE_CHECKING:
    from klogger.log import Log
    from klogger.statements import Connect

NAME = "klogger.cpu_span"
SCHEMA = "scheduler"
EVENTS = ("SCHEDIN", "SCHEDOUT")
# What its analyses share, which makes the table `quantum`.
SHARED = "_quantum"


def create(made: Made) -> None:
    """The table, empty as yet."""
    made.define(
        NAME,
        f"CREATE OR REPLACE TABLE {NAME} (pid INTEGER, cpu SMALLINT, from_ns BIGINT,"
        " to_ns BIGINT, program VARCHAR)",
    )


def fill(log: Log, connect: Connect) -> list[str]:
    """Gives warnings."""
    found = [one for one in analysis.find(log.schemas) if one.schema == SCHEMA]
    if not found or any(event not in log.events for event in EVENTS):
        return []
    shared = Analysis("cpu_spans", found[0].path, SCHEMA, includes=(SHARED,))
    cursor, included = connect(shared)
    try:
        statements.include(shared, cursor, included)
        cursor.execute(
            "INSERT INTO klogger.cpu_span BY NAME"
            " SELECT pid, cpu, from_ns, to_ns, program FROM quantum"
        )
    except (Failure, duckdb.Error) as error:
        return [f"who ran is not known: {str(error).splitlines()[0]}"]
    return []
