# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The answer as one HTML file: tables, chains, and the picture of the critical path.

Everything that comes from a log is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from klogger import flame
from klogger.document import Part, document, question, scripts, text, warnings
from klogger.units import show
from klogger.why import path_picture, rows
from klogger.why.answer import Answer, Thread
from klogger.why.bins import GROUPS, WAITED
from klogger.why.operated import Kind
from klogger.why.text import command, head, sentence

STYLE = """
.bins td:first-child, .bins th:first-child { min-width: 20rem; white-space: normal; }
.bins td:last-child { white-space: nowrap; }
.bins tr.group td { font-weight: 600; border-top: 2px solid var(--line); }
.bins tr.rest td { color: var(--faint); }
.bins td.bar { min-width: 110px; }
ol.because li { margin: .5rem 0; }
ol.because pre { margin: .2rem 0; font-size: .82rem; color: var(--faint); white-space: pre-wrap; }
"""
STYLE += path_picture.STYLE
ICICLE = "bins"
ROWS_MOST = 40


def page(answer: Answer, log: str) -> str:
    made = list(parts(answer, log))
    return document(
        answer.title,
        f"<p>{text(headline(answer))}</p>" + warnings(answer.notes),
        [(part.name, part.title) for part in made],
        "".join(part.html for part in made),
        style=STYLE,
        scripts=scripts({}, None, {n: one for part in made for n, one in part.flames.items()}),
    )


def for_report(answer: Answer, log: str) -> list[Part]:
    """The first sections, for the page of a report."""
    made = [replace(part, name=f"why-{part.name}") for part in parts(answer, log)
            if part.name in ("time", "because", "path", "icicle")]  # fmt: skip
    head = f"<p>{text(headline(answer))}</p>" + warnings(answer.notes)
    return [replace(made[0], body=head + made[0].body), *made[1:]]


def headline(answer: Answer) -> str:
    (first, _), *_ = list(head(answer))
    return first


def parts(answer: Answer, log: str) -> Iterator[Part]:
    yield Part("time", "Where the time went", bins(answer))
    if answer.chains:
        yield Part("because", "Because", because(answer, log))
    if answer.path is not None:
        yield Part("path", "Critical path", question(
            "At each moment, the thread that it waited for in the end, and what that one did."
        ) + path_picture.picture(answer.path))  # fmt: skip
    if answer.stacks:
        yield Part("icicle", "All bins", question(
            "Where each part of the time ends: above a wait for a thread is what that one did."
            " Click to zoom, type to search."
        ) + flame.figure(ICICLE), {ICICLE: icicle(answer)})  # fmt: skip
    if answer.chains:
        yield Part("followed", "With what those did that it waited for", followed(answer))
    if (found := answer.operated) is not None:
        if found.by:
            yield Part("by", f"By {found.by}", kinds(found.kinds, answer.elapsed))
        yield Part("slowest", "The slowest operations", slowest(found.slowest, log))
    elif len(answer.threads) > 1:
        yield Part("threads", "Threads", threads(answer.threads))


def icicle(answer: Answer) -> dict[str, Any]:
    found = flame.Node(answer.title)
    # One program is what the title says.
    first_at = 1 if len({way[0] for way, _ in answer.stacks}) == 1 else 0
    for way, ns in answer.stacks:
        found.add(way[first_at:], ns)
    return flame.as_json(found)


def bins(answer: Answer) -> str:
    return table(row(answer, one) for one in rows.tree(answer, ROWS_MOST))


def followed(answer: Answer) -> str:
    return table(row(answer, one) for one in rows.ends(answer, ROWS_MOST))


def row(answer: Answer, one: rows.Row) -> str:
    part = one.ns / answer.elapsed if answer.elapsed else 0.0
    times, longest = (f"{one.times:,}", show(one.longest, "ns")) if one.times else ("", "")
    return cells(one.what, part, show(one.ns, "ns"), show(part, "share"), times, longest,
                 kind=one.kind)  # fmt: skip


def table(
    body: Iterable[str], titles: Iterable[str] = ("time", "share", "times", "longest")
) -> str:
    head = "".join(f'<th class="number">{title}</th>' for title in titles)
    return (
        f'<div class="scroll"><table class="bins"><thead><tr><th></th>{head}<th></th></tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def because(answer: Answer, log: str) -> str:
    items = []
    for chain in answer.chains:
        last = chain.steps[-1]
        shown = ""
        if log and last.until > last.since:
            shown = f"<pre>{text(command(log, last.pid, last.since, last.until))}</pre>"
        items.append(f"<li>{text(sentence(chain))}{shown}</li>")
    return f'<ol class="because">{"".join(items)}</ol>'


def kinds(given: list[Kind], elapsed: int) -> str:
    made = []
    for one in given[:ROWS_MOST]:
        part = one.ns / elapsed if elapsed else 0.0
        made.append(cells(
            f"{one.value or '(none)'}: {one.most.phrase}", part, show(one.ns, "ns"),
            show(part, "share"), f"{one.times:,}", show(one.median, "ns"), show(one.longest, "ns"),
        ))  # fmt: skip
    return table(made, ("time", "share", "times", "median", "longest"))


def slowest(given: list[Kind], log: str) -> str:
    items = []
    for one in given:
        part = show(one.most_ns / one.ns if one.ns else 0.0, "share")
        words = f"{show(one.ns, 'ns')}, thread {one.pid}: {part} {one.most.phrase}"
        shown = command(log, one.pid, one.since, one.since + one.ns) if log else ""
        items.append(f"<li>{text(words)}<pre>{text(shown)}</pre></li>")
    return f'<ol class="because">{"".join(items)}</ol>'


def threads(given: list[Thread]) -> str:
    made = []
    for one in given[:ROWS_MOST]:
        shares = [show(one.groups[group] / one.elapsed if one.elapsed else 0.0, "share")
                  for group in GROUPS]  # fmt: skip
        most = f": {one.most.text}" if one.most else ""
        part = 1 - one.groups[WAITED] / one.elapsed if one.elapsed else 0.0
        made.append(cells(f"{one.name}[{one.pid}]{most}", part, show(one.elapsed, "ns"), *shares))
    return table(made, ("elapsed", *GROUPS))


def cells(what: str, part: float, *numbers: str, kind: str = "") -> str:
    row = "".join(f'<td class="number">{text(cell)}</td>' for cell in numbers)
    bar = f'<td class="bar"><i style="width:{100 * min(part, 1):.1f}%"></i></td>'
    return f'<tr class="{kind}"><td>{text(what)}</td>{row}{bar}</tr>'
