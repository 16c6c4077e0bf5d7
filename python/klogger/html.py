# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A report as one HTML file that needs no network: pictures, tables, and the SQL behind each
answer.

Everything that comes from a log is escaped. The page has no scripts but Vega, the timeline, and
what joins them.
"""

from __future__ import annotations

import html
import json
import string
from collections.abc import Iterable
from importlib import resources
from typing import Any

from klogger import findings, timeline, vega
from klogger.analysis import Column
from klogger.drawing import COLOURS, NOBODY, ON_PAGE, OTHER, Palette, Subjects
from klogger.executor import Result
from klogger.pictures import draw
from klogger.summary import Summary
from klogger.timeline import Timeline
from klogger.units import duration, printable, show

ROWS_MAX = 200
NUMBERS = {"ns", "s", "share", "count", "per_s", "bytes"}
# Pixels.
BAR_WIDTH = 70
STATUS = {"empty": "Nothing to show", "not_recorded": "No answer", "failed": "Failed"}
SEVERITY = {"error": "error", "loss": "loss", "notice": "notice", "info": "info"}


def page(
    summary: Summary,
    results: list[Result],
    events: Iterable[tuple[str, str, int, int]],
    ledger: Iterable[tuple[Any, ...]],
    tracks: Timeline | None = None,
    subjects: Subjects = NOBODY,
) -> str:
    """The whole page. `events`: (event, documentation, logged, lost)."""
    palette = Palette()
    specs: dict[str, dict[str, Any]] = {}
    # The timeline is drawn by a script of its own, and comes first.
    results = sorted(results, key=lambda r: not has_tracks(r, tracks))
    sections = []
    for result in results:
        spec = (
            None
            if has_tracks(result, tracks)
            else draw(result, palette, ON_PAGE, width="container", subjects=subjects)
        )
        if spec is not None:
            specs[result.analysis.name] = spec
        figure = "threads" if has_tracks(result, tracks) else result.analysis.name if spec else ""
        sections.append(section_of(result, figure, subjects))
    template = string.Template(file_of("page.html"))
    return template.substitute(
        title=text(summary.title),
        style=file_of("style.css"),
        head="".join(f"<p>{text(line)}</p>" for line in summary.lines) + warnings(summary.warnings),
        findings=findings_list(results),
        contents="".join(
            f'<a href="#{text(r.analysis.name)}">{text(r.analysis.title)}</a>' for r in results
        ),
        sections="".join(sections),
        events=event_table(events),
        ledger=ledger_table(ledger),
        specs=in_script(specs),
        timeline=timeline_data(tracks, palette),
        vega=vega.script() if specs else "",
        script="\n".join((file_of("timeline.js"), file_of("page.js"))),
    )


def file_of(name: str) -> str:
    return resources.files("klogger").joinpath("page", name).read_text()


def has_tracks(result: Result, tracks: Timeline | None) -> bool:
    one = result.analysis
    return (
        tracks is not None
        and (one.schema, one.name) == timeline.ANALYSIS
        and result.status == "answer"
    )


def timeline_data(tracks: Timeline | None, palette: Palette) -> str:
    if tracks is None:
        return ""
    # Programs that are in other pictures have their colours; then as many others as there are
    # colours.
    colours = palette.known.setdefault("program", {})
    for thread in tracks.threads[1:]:
        if len(colours) < len(COLOURS):
            palette.colour("program", thread["program"])
    data = in_script(timeline.as_json(tracks, colours, OTHER))
    return f'<script type="application/json" id="timeline-data">{data}</script>'


def text(value: object) -> str:
    return html.escape(printable(str(value)))


def in_script(value: Any) -> str:
    """JSON that cannot end the script element that it stands in."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def warnings(found: Iterable[str]) -> str:
    return "".join(f'<p class="warning">{text(w)}</p>' for w in found)


def findings_list(results: Iterable[Result]) -> str:
    items = [
        f'<li>{text(f.text)} <a href="#{text(f.analysis)}">{text(f.analysis)}</a></li>'
        for f in findings.first(results)
    ]
    return f'<ol class="findings">{"".join(items)}</ol>' if items else ""


def section_of(result: Result, figure: str, subjects: Subjects) -> str:
    """`figure`: `threads` is the timeline, empty is none, all others are names of pictures."""
    one = result.analysis
    parts = [
        f'<section id="{text(one.name)}"><h2>{text(one.title or one.name)}</h2>',
        f'<p class="question">{text(one.question)}</p>',
        warnings(result.warnings),
    ]
    if result.status != "answer":
        parts.append(f'<p class="warning">{STATUS[result.status]}: {text(result.reason)}</p>')
    else:
        parts += [f"<p>{text(f.text)}</p>" for f in findings.of(result)]
        if figure == "threads":
            parts.append('<figure><div id="threads"></div></figure>')
        elif figure:
            parts.append(
                f'<figure><div class="picture" data-picture="{text(figure)}"></div></figure>'
            )
        parts += [f'<p class="note">{text(n)}</p>' for n in one.notes]
        parts.append(table_of(result, subjects))
    # What a study has computed need not have any.
    if one.setup or one.sections:
        parts.append(
            f"<details><summary>The SQL behind it</summary><pre>{sql_of(result)}</pre></details>"
        )
    return "".join([*parts, "</section>"])


def sql_of(result: Result) -> str:
    one = result.analysis
    texts = [f"-- {name}.sql is included before this." for name in one.includes]
    texts += [one.setup] if one.setup else []
    texts += [f"-- {name}\n{query};" for name, query in one.sections.items()]
    return html.escape("\n\n".join(texts))


def table_of(result: Result, subjects: Subjects) -> str:
    columns = [result.analysis.columns.get(n, Column(n, "", False, "")) for n in result.table.names]
    head = "".join(
        f'<th{number_class(c)} title="{text(c.doc)}">{text(c.name.replace("_", " "))}</th>'
        + ("<th></th>" if c.bar else "")
        for c in columns
    )
    tops = [
        max((float(r[i]) for r in result.table.rows if isinstance(r[i], (int, float))), default=0.0)
        for i in range(len(columns))
    ]
    body = []
    for row in result.table.rows[:ROWS_MAX]:
        cells = "".join(cell(v, c, top) for v, c, top in zip(row, columns, tops, strict=True))
        body.append(f"<tr>{cells}</tr>")
    rest = len(result.table.rows[ROWS_MAX:]) + result.table.left_out
    folded = len(body) > 15
    count = f"{len(body)} rows{f' of {len(body) + rest:,}' if rest else ''}"
    more = f'<p class="note">{count}</p>' if rest or folded else ""
    names = [
        place_of(columns, i)
        for i, c in enumerate(columns)
        if subjects.fill(row[i] for row in result.table.rows)
    ]
    marks = f' data-names="{" ".join(map(str, names))}"' if names else ""
    head = f"<thead><tr>{head}</tr></thead>"
    table = f'<table class="answer"{marks}>{head}<tbody>{"".join(body)}</tbody></table>'
    docs = "".join(
        f"<dt>{text(c.name.replace('_', ' '))}</dt><dd>{text(c.doc)}</dd>" for c in columns if c.doc
    )
    scroll = f'<div class="{"scroll tall" if folded else "scroll"}" tabindex="0">{table}</div>'
    return (
        f"{scroll}{more}<details><summary>What the columns mean</summary><dl>{docs}</dl></details>"
    )


def place_of(columns: list[Column], index: int) -> int:
    """Which cell of a row: bars have cells of their own."""
    return index + sum(1 for c in columns[:index] if c.bar)


def number_class(column: Column) -> str:
    return (
        ' class="number"'
        if column.unit in NUMBERS
        else ' class="spark"'
        if column.unit == "spark"
        else ""
    )


def cell(value: Any, column: Column, top: float) -> str:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    # Tables are sorted by the number, not by how it is shown.
    sorts = f' data-value="{value:.12g}"' if number and column.unit else ""
    shown = f"<td{number_class(column)}{sorts}>{html.escape(show(value, column.unit))}</td>"
    if not column.bar:
        return shown
    part = float(value or 0) / top if top > 0 else 0.0
    return f'{shown}<td class="bar"><i style="width:{max(0.0, min(part, 1.0)) * BAR_WIDTH:.1f}px"></i></td>'


def event_table(events: Iterable[tuple[str, str, int, int]]) -> str:
    rows = "".join(
        f'<tr><td>{text(name)}</td><td class="number">{logged:,}</td><td class="number">{lost:,}</td>'
        f"<td>{text(doc)}</td></tr>"
        for name, doc, logged, lost in events
    )
    head = (
        '<tr><th>event</th><th class="number">logged</th><th class="number">lost</th><th></th></tr>'
    )
    return f'<div class="scroll"><table><thead>{head}</thead><tbody>{rows}</tbody></table></div>'


def ledger_table(ledger: Iterable[tuple[Any, ...]]) -> str:
    rows = []
    for severity, key, event, cpu, tid, count, start, end, words in ledger:
        when = (
            f"{duration(start)} to {duration(end)}" if start is not None and end is not None else ""
        )
        place = f"CPU {cpu}" if cpu is not None else f"thread {tid}" if tid is not None else ""
        cells = "".join(f"<td>{text(c)}</td>" for c in (key, event or "", place, when))
        rows.append(
            f'<tr><td class="{SEVERITY.get(str(severity), "info")}">{text(severity)}</td>{cells}'
            f'<td class="number">{"" if count is None else f"{count:,}"}</td><td>{text(words or "")}</td></tr>'
        )
    if not rows:
        return "<p>Nothing is missing.</p>"
    titles = "".join(f"<th>{t}</th>" for t in ("", "what", "event", "where", "when"))
    head = f'<tr>{titles}<th class="number">count</th><th></th></tr>'
    return f'<div class="scroll tall"><table><thead>{head}</thead><tbody>{"".join(rows)}</tbody></table></div>'
