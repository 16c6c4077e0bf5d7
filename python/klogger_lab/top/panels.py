# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What covers the screen of `klogger top` for a while: the keys, and the events behind a row."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import DataTable, Static

from klogger.units import printable
from klogger_lab.top.window import Behind

KEYS = """\
klogger top: the analyses of a schema over the last seconds

  left, right    another analysis; 1 to 9: by its number
  up, down       another row; Enter shows the events behind it
  s              sort by the next column (a click on its name does, too)
  S              the other direction
  /              only rows with these words; Escape shows all
  <, >           the columns that do not fit; shift and left or right, too
  v              the picture of the analysis, or its table
  space          pause, and go on
  q, Ctrl-C      end the recording
  Ctrl-Z         to the background; the recording goes on

The time between two frames is so long that klogger needs less than 10 % of one
CPU: the more events there are, the longer. Only the analysis on the screen is
run. The events behind a row are those of the events that the analysis reads
which have the values of the row in columns of the same name.

Escape: back"""


class Panel(ModalScreen[None]):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,enter", "dismiss", "back", priority=True)
    ]


class Help(Panel):
    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(Text(KEYS), markup=False)


class Events(Panel):
    CSS = """
    Events #what { height: auto; max-height: 3; text-style: bold; }
    Events DataTable { height: 1fr; }
    """

    def __init__(self, found: Behind) -> None:
        super().__init__()
        self.found = found

    def compose(self) -> ComposeResult:
        which = " and ".join(self.found.conditions) or "all that the analysis reads"
        shown = len(self.found.rows)
        newest = f", the newest {shown:,}" if shown < self.found.count else ""
        text = f"{self.found.count:,} events{newest}: {which}   (Escape: back)"
        yield Static(Text(printable(text)), id="what", markup=False)
        yield DataTable(cursor_type="row")

    def on_mount(self) -> None:
        table = self.query_one(DataTable)
        for name in ("time", "CPU", "event", "program", "fields"):
            table.add_column(Text(name))
        for time, cpu, event, program, what in self.found.rows:
            cells = (f"{time / 1e9:.6f}", cpu, event, program, what)
            table.add_row(*(Text(printable("" if c is None else str(c))) for c in cells))
        table.move_cursor(row=len(self.found.rows) - 1)
        table.focus()
