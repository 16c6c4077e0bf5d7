# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A report as one HTML file: pictures, tables, and the SQL behind each answer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from klogger import findings, timeline
from klogger.document import document, scripts, text, warnings
from klogger.drawing import COLOURS, NOBODY, ON_PAGE, OTHER, Palette, Subjects
from klogger.durations import duration
from klogger.executor import Result
from klogger.pictures import draw
from klogger.sections import section_of
from klogger.summary import Summary
from klogger.timeline import Timeline

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
        drawn = has_tracks(result, tracks)
        spec = (
            None if drawn else draw(result, palette, ON_PAGE, width="container", subjects=subjects)
        )
        if spec is not None:
            specs[result.analysis.name] = spec
        figure = "threads" if drawn else result.analysis.name if spec else ""
        sections.append(section_of(result, figure, subjects))
    lines = "".join(f"<p>{text(line)}</p>" for line in summary.lines)
    return document(
        summary.title,
        lines + warnings(summary.warnings) + findings_list(results),
        [(r.analysis.name, r.analysis.title) for r in results],
        "".join(
            [
                *sections,
                table_section("events", "Events", "What does the log hold?", event_table(events)),
                table_section("ledger", "Ledger", "What is missing from it?", ledger_table(ledger)),
            ]
        ),
        scripts=scripts(specs, timeline_data(tracks, palette)),
    )


def table_section(name: str, title: str, question: str, table: str) -> str:
    return (
        f'<section id="{name}"><h2>{title}</h2><p class="question">{question}</p>{table}</section>'
    )


def has_tracks(result: Result, tracks: Timeline | None) -> bool:
    one = result.analysis
    return (
        tracks is not None
        and (one.schema, one.name) == timeline.ANALYSIS
        and result.status == "answer"
    )


def timeline_data(tracks: Timeline | None, palette: Palette) -> dict[str, Any] | None:
    if tracks is None:
        return None
    # Programs that are in other pictures have their colours; then as many others as there are
    # colours.
    colours = palette.known.setdefault("program", {})
    for thread in tracks.threads[1:]:
        if len(colours) < len(COLOURS):
            palette.colour("program", thread["program"])
    return timeline.as_json(tracks, colours, OTHER)


def findings_list(results: Iterable[Result]) -> str:
    items = [
        f'<li>{text(f.text)} <a href="#{text(f.analysis)}">{text(f.analysis)}</a></li>'
        for f in findings.first(results)
    ]
    return f'<ol class="findings">{"".join(items)}</ol>' if items else ""


def event_table(events: Iterable[tuple[str, str, int, int]]) -> str:
    rows = "".join(
        f'<tr><td>{text(name)}</td><td class="number">{logged:,}</td>'
        f'<td class="number">{lost:,}</td>'
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
            f'<td class="number">{"" if count is None else f"{count:,}"}</td>'
            f"<td>{text(words or '')}</td></tr>"
        )
    if not rows:
        return "<p>Nothing is missing.</p>"
    titles = "".join(f"<th>{t}</th>" for t in ("", "what", "event", "where", "when"))
    head = f'<tr>{titles}<th class="number">count</th><th></th></tr>'
    return (
        f'<div class="scroll tall"><table><thead>{head}</thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )
