# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The screen of `klogger top`. What is in a log is untrusted: it gets there as plain text, without
markup and without characters that act on a terminal.
"""

from __future__ import annotations

import dataclasses
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, ClassVar

from rich.cells import cell_len
from rich.text import Text
from textual import on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widgets import DataTable, Footer, Input, Static, Tab, Tabs

from klogger import findings
from klogger.analysis import Column
from klogger.executor import Result
from klogger.failure import Failure
from klogger.units import printable
from klogger_lab.top import behind, rows
from klogger_lab.top.panels import Events, Help
from klogger_lab.top.rows import Order, Shown
from klogger_lab.top.window import Behind, Frame, Window

# Sentences above the table.
SENTENCES = 2
ENDS = (signal.SIGHUP, signal.SIGTERM, signal.SIGINT)
# Seconds that the screen gets to be taken away after one of them.
LAST_WORDS = 10.0


class Told(Message):
    """From another thread, which does not wait for it: the screen may end meanwhile."""

    def __init__(self, what: Callable[..., Any], *words: Any) -> None:
        super().__init__()
        self.what, self.words = what, words


class Top(App[None]):
    """`window` is entered by a thread of its own, so that the first screen need not wait for the
    recorder.
    """

    TITLE = "klogger top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { overflow: hidden; }
    #head { height: 3; text-wrap: nowrap; text-overflow: ellipsis; }
    #said { height: auto; max-height: 6; }
    #table { height: 1fr; }
    #figure { height: 1fr; display: none; }
    #table, #figure { scrollbar-size-vertical: 1; }
    #filter { height: 1; border: none; display: none; }
    Tabs { height: 2; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "quit"),
        Binding("question_mark", "help", "help", key_display="?"),
        Binding("left", "turn(-1)", "analysis", priority=True, show=False),
        Binding("right", "turn(1)", "analysis", priority=True, show=False),
        Binding("less_than_sign,shift+left", "scroll(-1)", "columns", show=False),
        Binding("greater_than_sign,shift+right", "scroll(1)", "columns", show=False),
        Binding("space", "pause", "pause", priority=True),
        Binding("s", "sort", "sort"),
        Binding("S", "reverse", "reverse", show=False),
        Binding("slash", "filter", "filter", key_display="/"),
        Binding("v", "picture", "picture"),
        Binding("enter", "events", "events", show=True),
        Binding("escape", "clear", "clear", show=False),
        Binding("ctrl+c", "quit", "quit", show=False, priority=True),
        Binding("ctrl+z", "suspend_process", "suspend", show=False, priority=True),
        *(Binding(str(n), f"nth({n})", f"analysis {n}", show=False) for n in range(1, 10)),
    ]

    def __init__(self, window: Window, about: str, analysis: str | None = None) -> None:
        super().__init__(ansi_color=True)
        self.window, self.about, self.first = window, printable(about), analysis
        self.frame: Frame | None = None
        self.names: list[str] = []
        self.tabs = 0
        # What is in the table, and of which answer.
        self.shown: Shown | None = None
        self.result: Result | None = None
        self.orders: dict[str, Order] = {}
        self.words = ""
        self.paused = self.drawn = False
        self.stopping, self.gone = threading.Event(), threading.Event()
        self.failure: Exception | None = None
        self.work: threading.Thread | None = None

    def compose(self) -> ComposeResult:
        yield Static(Text(f"{self.about}\nattaching ..."), id="head", markup=False)
        yield Tabs(id="names")
        yield Static("", id="said", markup=False)
        yield DataTable(id="table", cursor_type="row", zebra_stripes=False)
        with VerticalScroll(id="figure"):
            yield Static("", id="drawing", markup=False)
        yield Input(
            id="filter", placeholder="rows that contain these words; Escape: all", compact=True
        )
        yield Footer(compact=True)

    def on_mount(self) -> None:
        self.table.focus()
        self.work = threading.Thread(target=self.follow, name="frames", daemon=True)
        self.work.start()

    def end(self) -> None:
        """From a thread of its own. A terminal that is gone takes no last words, and Textual waits
        until it does: then the guard does the rest.
        """
        self.post_message(Told(self.exit))
        if not self.gone.wait(LAST_WORDS):
            signal.raise_signal(signal.SIGKILL)

    def exit(self, *words: Any, **named: Any) -> None:
        self.stopping.set()
        super().exit(*words, **named)

    @property
    def table(self) -> DataTable[Text]:
        return self.query_one("#table", DataTable)

    # The thread that takes frames.

    def follow(self) -> None:
        try:
            with self.window:
                self.window.choose(self.first)
                for frame in self.window.frames(self.stopping):
                    self.post_message(Told(self.take, frame))
                    if self.first is None and frame.analyses:
                        self.first = frame.analyses[0].name
                        self.window.choose(self.first)
        except Exception as failure:
            self.failure = failure
            self.post_message(Told(self.exit))

    @on(Told)
    def told(self, message: Told) -> None:
        """A screen that is about to end draws nothing any more."""
        if not self.stopping.is_set():
            message.what(*message.words)

    # What is on the screen.

    def take(self, frame: Frame) -> None:
        self.frame = frame
        names = [one.name for one in frame.analyses]
        if names != self.names:
            self.name_tabs(names)
        self.draw()

    def name_tabs(self, names: list[str]) -> None:
        self.names = names
        tabs = self.query_one("#names", Tabs)
        # Those that go are there a while longer, and no two may have the same name.
        self.tabs += 1
        tabs.clear()
        for number, name in enumerate(names, 1):
            label = f"{number} {name}" if number < 10 else name
            tabs.add_tab(Tab(Content(printable(label)), id=self.tab(number)))
        chosen = self.window.chosen or self.first
        if chosen in names:
            tabs.active = self.tab(names.index(chosen) + 1)

    def tab(self, number: int) -> str:
        return f"analysis-{self.tabs}-{number}"

    @property
    def chosen(self) -> str:
        return self.window.chosen or (self.names[0] if self.names else "")

    def draw(self) -> None:
        frame = self.frame
        self.query_one("#head", Static).update(self.head())
        if frame is None:
            return
        # The picture needs their room.
        sentences = 0 if self.drawn else SENTENCES
        self.query_one("#said", Static).update(said(frame, self.chosen, self.words, sentences))
        self.draw_table(frame)
        self.query_one("#figure").display, self.table.display = self.drawn, not self.drawn
        if self.drawn:
            self.draw_picture(frame)

    def draw_picture(self, frame: Frame) -> None:
        # It takes long to load, and most never ask for it.
        from klogger import figure

        result = frame.result(self.chosen)
        lines = figure.lines(result, self.size.width - 1) if result else []
        text = Text("\n".join(lines) or "this analysis has no picture for a terminal")
        self.query_one("#drawing", Static).update(text)

    def head(self) -> Text:
        frame = self.frame
        if frame is None:
            return Text(f"{self.about}\nwaiting for the first events ...")
        missing = f"{frame.lost:,} missing" if frame.lost else "none missing"
        short = " (memory holds no more)" if frame.short else ""
        text = Text(f"{self.about}\n")
        text.stylize("bold")
        state = "paused" if self.paused and frame.state == "running" else frame.state
        if state != "running":
            text.append(state, style="reverse")
            text.append("  ")
        text.append(f"last {frame.seconds:.3g} s{short}  {frame.rate:,.0f} events/s  ")
        text.append(missing, style="bold red" if frame.lost else "")
        text.append(f"\nklogger needs {frame.cost.share:.1%} of a CPU; {frame.cost.said()}")
        return text

    def draw_table(self, frame: Frame) -> None:
        result = frame.result(self.chosen)
        table = self.table
        x, y = table.scroll_x, table.scroll_y
        before, at = self.about_row(), table.cursor_row
        table.clear(columns=True)
        self.shown = None
        if result is None or result.status != "answer":
            return
        order = self.orders.get(self.chosen, Order())
        self.shown, self.result = rows.shown(result, order, self.words), result
        titles = map(printable, self.shown.titles(order))
        for i, (column, title) in enumerate(zip(self.shown.columns, titles, strict=True)):
            width = max(map(cell_len, [title, *(cells[i] for cells in self.shown.cells)]))
            table.add_column(aligned(title, column), key=column.name, width=width)
        for cells in self.shown.cells:
            pairs = zip(cells, self.shown.columns, strict=True)
            table.add_row(*(aligned(cell, column) for cell, column in pairs))
        if self.shown.cells:
            # The same one, wherever it is now; but the first row stays the first.
            abouts = [behind.keys(result, row) for row in self.shown.rows] if at else []
            same = abouts.index(before) if before in abouts else at
            table.move_cursor(row=min(same, len(self.shown.cells) - 1), scroll=same != at)
            table.scroll_to(x=x, y=y if same == at else None, animate=False)

    def about_row(self) -> dict[str, Any] | None:
        """What the chosen row is about."""
        at, of = self.table.cursor_row, self.result
        if of is None or self.shown is None or at >= len(self.shown.rows):
            return None
        return behind.keys(of, self.shown.rows[at])

    # What keys do.

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Below a panel, nothing happens that nobody would see."""
        return len(self.screen_stack) <= 1 or action in ("quit", "suspend_process")

    def action_scroll(self, by: int) -> None:
        """To the columns that do not fit."""
        self.table.scroll_relative(x=by * self.size.width // 4, animate=False)

    def action_turn(self, by: int) -> None:
        field = self.query_one("#filter", Input)
        if field.has_focus:
            field.cursor_position += by
        elif self.names:
            at = self.names.index(self.chosen) if self.chosen in self.names else 0
            self.go_to((at + by) % len(self.names))

    def action_nth(self, number: int) -> None:
        if number <= len(self.names):
            self.go_to(number - 1)

    def go_to(self, at: int) -> None:
        self.query_one("#names", Tabs).active = self.tab(at + 1)

    @on(Tabs.TabActivated)
    def switched(self, event: Tabs.TabActivated) -> None:
        at = int((event.tab.id or "analysis-1").rpartition("-")[2]) - 1
        if at < len(self.names) and self.names[at] != self.window.chosen:
            self.first = self.names[at]
            self.window.choose(self.names[at])
            self.draw()

    def action_pause(self) -> None:
        field = self.query_one("#filter", Input)
        if field.has_focus:
            field.insert_text_at_cursor(" ")
            return
        if self.frame is None:
            # There is nothing yet that could stand still.
            return
        self.paused = not self.paused
        self.window.pause(self.paused)
        self.draw()

    def action_sort(self) -> None:
        if self.shown is not None:
            order = self.orders.get(self.chosen, Order())
            self.orders[self.chosen] = rows.next_order(order, self.shown.columns)
            self.draw()

    def action_reverse(self) -> None:
        order = self.orders.get(self.chosen, Order())
        self.orders[self.chosen] = dataclasses.replace(order, falling=not order.falling)
        self.draw()

    @on(DataTable.HeaderSelected)
    def clicked(self, event: DataTable.HeaderSelected) -> None:
        name = str(event.column_key.value)
        order = self.orders.get(self.chosen, Order())
        falling = not order.falling if order.column == name else True
        self.orders[self.chosen] = Order(name, falling)
        self.draw()

    def action_filter(self) -> None:
        field = self.query_one("#filter", Input)
        field.display = True
        field.focus()

    @on(Input.Changed)
    def typed(self, event: Input.Changed) -> None:
        self.words = event.value
        self.draw()

    @on(Input.Submitted)
    def entered(self) -> None:
        self.table.focus()

    def action_clear(self) -> None:
        field = self.query_one("#filter", Input)
        field.value, field.display = "", False
        self.table.focus()

    def action_picture(self) -> None:
        self.drawn = not self.drawn
        self.draw()
        self.back()

    def back(self, _: None = None) -> None:
        """The keys are for what is shown: also after a panel, during which all may have changed."""
        (self.query_one("#figure") if self.drawn else self.table).focus()

    def action_help(self) -> None:
        self.push_screen(Help(), self.back)

    @on(DataTable.RowSelected)
    def row_selected(self) -> None:
        self.action_events()

    def action_events(self) -> None:
        """What is shown stands still meanwhile: the events are those of the row."""
        at = self.table.cursor_row
        if self.result is None or self.shown is None or at >= len(self.shown.rows):
            return
        words = (self.result, self.shown.rows[at])
        threading.Thread(target=self.find, args=words, daemon=True).start()

    def find(self, result: Result, row: list[Any]) -> None:
        try:
            found: Behind | Failure = self.window.behind(result, row)
        except Failure as failure:
            found = failure
        self.post_message(Told(self.show_events, found))

    def show_events(self, found: Behind | Failure) -> None:
        if isinstance(found, Failure):
            self.notify(printable(str(found)), markup=False)
        else:
            self.push_screen(Events(found), self.back)

    def on_resize(self) -> None:
        if self.frame is not None:
            self.draw()


def aligned(text: str, column: Column) -> Text:
    """Numbers are at the right, but for those with bars, which begin below each other."""
    return Text(text, justify="right" if rows.is_number(column) and not column.bar else "left")


def said(frame: Frame, name: str, words: str, sentences: int = SENTENCES) -> Text:
    """What the analysis asks and finds; why there is no answer; and what is missing."""
    text = Text(no_wrap=False, overflow="fold")
    result = frame.result(name)
    lines: list[tuple[str, str]] = [(note, "yellow") for note in frame.notes[-2:]]
    lines += [(frame.reason, "yellow")] if frame.reason else []
    lines += [(f"! {line}", "yellow") for line in frame.ledger.losses()[:2]]
    if result is not None:
        lines.append((result.analysis.question, "bold"))
        if result.status != "answer":
            label = {"empty": "nothing to show", "not_recorded": "no answer"}.get(
                result.status, "failed"
            )
            lines.append((f"{label}: {result.reason}", "yellow"))
        lines += [(f"• {one.text}", "") for one in findings.of(result)[:sentences]]
        if words:
            lines.append((f"only rows with: {words}", "reverse"))
    elif not frame.analyses:
        lines.append(("the schema brings no analyses; 'klogger sql' asks a log anything", "yellow"))
    else:
        lines.append((f"{name} ...", "bold"))
    for line, style in lines:
        text.append(printable(" ".join(line.split())) + "\n", style=style)
    text.rstrip()
    return text


def show(window: Window, analysis: str | None, about: str) -> int:
    """Until somebody ends it. Raises the Failure of a recorder that could not start."""
    app = Top(window, about, analysis)

    def end(_number: int, _frame: FrameType | None) -> None:
        threading.Thread(target=app.end, name="end", daemon=True).start()

    for number in ENDS:
        signal.signal(number, end)
    try:
        app.run()
    finally:
        app.gone.set()
        app.stopping.set()
        # They would interrupt the end of the recorder.
        for number in ENDS:
            signal.signal(number, signal.SIG_IGN)
        if app.work is not None:
            app.work.join()
    if app.failure is not None:
        raise app.failure
    return 0
