# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""One answer on a page: its picture, what was found, its table, and the SQL behind it."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Iterable
from typing import Any

from klogger import findings, flame, remarks
from klogger.analysis import Column
from klogger.document import question, text, warnings
from klogger.drawing import NOBODY, ON_PAGE, Palette, Subjects
from klogger.executor import Result
from klogger.pictures import draw
from klogger.remarks import Remark
from klogger.trimmed import cells_of, trimmed

ROWS_MAX = 200
NUMBERS = {"ns", "s", "share", "count", "per_s", "bytes"}
# Pixels.
BAR_WIDTH = 70
STATUS = {"empty": "Nothing to show", "not_recorded": "No answer", "failed": "Failed"}


def named_section(
    prefix: str, result: Result, palette: Palette, specs: dict[str, dict[str, Any]]
) -> tuple[str, str]:
    """The section of a result under a name of its own, and that name: a page may show the same
    analysis twice. Its picture is added to `specs`.
    """
    name = f"{prefix}-{result.analysis.name}"
    named = dataclasses.replace(result, analysis=dataclasses.replace(result.analysis, name=name))
    spec = draw(named, palette, ON_PAGE, width="container", subjects=NOBODY)
    if spec is not None:
        specs[name] = spec
    return section_of(named, name if spec is not None else "", NOBODY), name


def section_of(result: Result, figure: str, subjects: Subjects, said: Iterable[Remark] = ()) -> str:
    """`figure`: `threads` is the timeline, `flame` the flame graph of this answer, empty is none;
    all others are names of pictures.
    `said`: the warnings that the page's head has.
    """
    one = result.analysis
    parts = [
        f'<section id="{text(one.name)}"><h2>{text(one.title or one.name)}</h2>',
        question(one.question),
        warnings(remarks.own(result, said)),
    ]
    if result.status != "answer":
        parts.append(f'<p class="warning">{STATUS[result.status]}: {text(result.reason)}</p>')
    else:
        parts += [f"<p>{text(f.text)}</p>" for f in findings.of(result)]
        if figure == "threads":
            parts.append('<figure><div id="threads"></div></figure>')
        elif figure == "flame":
            parts.append(flame.figure(one.name))
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
    result, omitted = trimmed(result)
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
    listed = result.table.rows[:ROWS_MAX]
    shown = [cells_of(c, [row[i] for row in listed]) for i, c in enumerate(columns)]
    body = []
    for number, row in enumerate(listed):
        texts = (column[number] for column in shown)
        cells = "".join(map(cell, row, texts, columns, tops))
        body.append(f"<tr>{cells}</tr>")
    rest = len(result.table.rows[ROWS_MAX:]) + result.table.left_out
    folded = len(body) > 15
    count = f"{len(body)} rows{f' of {len(body) + rest:,}' if rest else ''}"
    said = [count] if rest or folded else []
    said += [f"not shown: {omitted}"] if omitted else []
    more = f'<p class="note">{text("; ".join(said))}</p>' if said else ""
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


def cell(value: Any, words: str, column: Column, top: float) -> str:
    """`words`: the value as it is shown."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    # Tables are sorted by the number, not by how it is shown.
    sorts = f' data-value="{value:.12g}"' if number and column.unit else ""
    shown = f"<td{number_class(column)}{sorts}>{html.escape(words)}</td>"
    if not column.bar:
        return shown
    part = float(value or 0) / top if top > 0 else 0.0
    return (
        f'{shown}<td class="bar">'
        f'<i style="width:{max(0.0, min(part, 1.0)) * BAR_WIDTH:.1f}px"></i></td>'
    )
