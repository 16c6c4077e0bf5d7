# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A report as one HTML file: pictures, tables, and the SQL behind each answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from klogger import findings, flame, remarks, timeline
from klogger.document import Part, document, question, scripts, text, warnings
from klogger.drawing import COLOURS, NOBODY, ON_PAGE, OTHER, Palette, Subjects
from klogger.executor import Result
from klogger.ledger import TITLES, cause_of, remedy_of, when
from klogger.pictures import draw
from klogger.remarks import Remark
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
    *,
    parts: Sequence[Part] = (),
    style: str = "",
) -> str:
    """The whole page. `events`: (event, documentation, logged, lost). `parts`, with their `style`:
    what comes before the results.
    """
    palette = Palette()
    specs: dict[str, dict[str, Any]] = {}
    flames: dict[str, Any] = {name: one for part in parts for name, one in part.flames.items()}
    said = remarks.shared(results, summary.warnings)
    begins = findings_list(results)
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
        if (graph := flame_of(result)) is not None:
            flames[result.analysis.name] = graph
            figure = "flame"
        sections.append(section_of(result, figure, subjects, said))
    lines = "".join(f"<p>{text(line)}</p>" for line in summary.lines)
    of_log = (
        Part("events", "Events", question("What does the log hold?") + event_table(events)),
        Part("ledger", "Ledger", question("What is missing from it?") + ledger_table(ledger)),
    )
    return document(
        summary.title,
        lines + head_of_ledger(summary) + remark_list(summary, said) + begins,
        [(p.name, p.title) for p in parts] + [(r.analysis.name, r.analysis.title) for r in results],
        "".join([*(part.html for part in parts), *sections, *(part.html for part in of_log)]),
        style=style,
        scripts=scripts(specs, timeline_data(tracks, palette), flames),
    )


def has_tracks(result: Result, tracks: Timeline | None) -> bool:
    one = result.analysis
    return (
        tracks is not None
        and (one.schema, one.name) == timeline.ANALYSIS
        and result.status == "answer"
    )


def flame_of(result: Result) -> dict[str, Any] | None:
    """The flame graph of an answer, if that is its picture."""
    picture = result.analysis.picture
    if picture is None or picture.kind != "flame" or result.status != "answer":
        return None
    x, y = picture.parts["x"], picture.parts["y"]
    stacks = [(str(r[y]), float(r[x] or 0)) for r in result.points.records() if r[y] is not None]
    column = result.analysis.columns.get(x)
    unit = column.unit if column else ""
    return flame.as_json(flame.tree(stacks), unit) if stacks else None


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


def remark_list(summary: Summary, said: list[Remark]) -> str:
    """What several answers warn of, once, with links to them."""
    told = {remark.text for remark in said}
    alone = warnings(w for w in summary.warnings if w not in told)
    links = (
        (remark, ", ".join(f'<a href="#{text(n)}">{text(n)}</a>' for n in remark.analyses))
        for remark in said
    )
    return alone + "".join(
        f'<p class="warning">{text(remark.text)} <small>{names}</small></p>'
        for remark, names in links
    )


def head_of_ledger(summary: Summary) -> str:
    """What is missing: a row for each kind, and its remedy."""
    kinds = summary.ledger.kinds
    if not kinds:
        return ""
    titles = "".join(
        f"<th{number}>{title}</th>"
        for title, number in zip(TITLES, ["", "", "", "", ' class="number"'], strict=True)
    )
    rows = []
    for kind in kinds:
        *texts, count = kind.cells()
        cells = "".join(f"<td>{text(cell)}</td>" for cell in texts)
        advice = f"<td>{text(kind.advice())}</td>"
        rows.append(
            f'<tr class="{SEVERITY.get(kind.severity, "info")}">{cells}'
            f'<td class="number">{text(count)}</td>{advice}</tr>'
        )
    return (
        f'<div class="scroll"><table class="missing"><thead><tr>{titles}<th></th></tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


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
    rows, remedies = [], {}
    for severity, key, event, cpu, tid, count, start, end, words in ledger:
        span = when(start, end)
        place = f"CPU {cpu}" if cpu is not None else f"thread {tid}" if tid is not None else ""
        cells = "".join(f"<td>{text(c)}</td>" for c in (key, event or "", place, span))
        rows.append(
            f'<tr><td class="{SEVERITY.get(str(severity), "info")}">{text(severity)}</td>{cells}'
            f'<td class="number">{"" if count is None else f"{count:,}"}</td>'
            f"<td>{text(cause_of(str(words or '')))}</td></tr>"
        )
        remedies[str(key)] = remedy_of(str(words or ""))
    if not rows:
        return "<p>Nothing is missing.</p>"
    titles = "".join(f"<th>{t}</th>" for t in ("", "what", "event", "where", "when"))
    head = f'<tr>{titles}<th class="number">count</th><th></th></tr>'
    advice = "".join(f"<dt>{text(k)}</dt><dd>{text(r)}</dd>" for k, r in remedies.items() if r)
    return (
        f'<div class="scroll tall"><table><thead>{head}</thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div><dl>{advice}</dl>"
    )
