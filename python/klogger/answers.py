# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The answers of a log's analyses, for Python and for notebooks, which show them with their
pictures.
"""

from __future__ import annotations

import html
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from klogger import extras, findings, remarks
from klogger.analysis import Column
from klogger.drawing import Palette, Theme
from klogger.executor import Result, Rows
from klogger.failure import Failure, did_you_mean
from klogger.pictures import draw
from klogger.remarks import Remark
from klogger.summary import Summary
from klogger.units import printable, show

if TYPE_CHECKING:
    import pandas as pd

# Of a table, in a notebook.
ROWS = 10
NUMBERS = {"ns", "s", "share", "count", "per_s", "bytes"}


@dataclass(frozen=True)
class Answer:
    """One analysis. `status` is answer, empty, not_recorded or failed; `reason` says why it is not
    an answer.
    """

    result: Result

    @property
    def name(self) -> str:
        return self.result.analysis.name

    @property
    def status(self) -> str:
        return self.result.status

    @property
    def reason(self) -> str:
        return self.result.reason

    @property
    def question(self) -> str:
        return self.result.analysis.question

    @property
    def findings(self) -> list[str]:
        """What is to be seen, in sentences."""
        return self.result.findings

    @property
    def warnings(self) -> list[str]:
        """Why the answer may be wrong or incomplete."""
        return self.result.warnings

    @property
    def units(self) -> dict[str, str]:
        """The unit of each column of the table that has one; times are in ns, shares are parts of
        1.
        """
        return {
            n: c.unit
            for n, c in self.result.analysis.columns.items()
            if n in self.result.table.names and c.unit
        }

    def df(self) -> pd.DataFrame:
        """The table of the answer. It has no rows if there is no answer."""
        return frame(self.result.table)

    def points(self) -> pd.DataFrame:
        """What the picture is drawn from."""
        return frame(self.result.points)

    def svg(self, palette: Palette | None = None) -> str | None:
        """The picture; None if there is none."""
        spec = draw(self.result, palette or Palette(), Theme())
        return None if spec is None else str(extras.PICTURES.load().vegalite_to_svg(spec))

    def __repr__(self) -> str:
        rows = f"{len(self.result.table.rows):,} rows" if self.status == "answer" else self.reason
        return f"<Answer {self.name}: {self.question} {rows}>"

    def _repr_html_(self) -> str:
        return section(self, Palette())


@dataclass(frozen=True)
class Report:
    """All answers, by name. A notebook shows them, `save` writes them."""

    path: Path
    summary: Summary
    answers: dict[str, Answer]

    def __getitem__(self, name: str) -> Answer:
        if name not in self.answers:
            listed = (
                f"there are: {', '.join(self.answers)}"
                if self.answers
                else "the log's schemata bring none"
            )
            raise Failure(f"no analysis '{name}'", help=did_you_mean(name, self.answers) or listed)
        return self.answers[name]

    def __iter__(self) -> Iterator[Answer]:
        return iter(self.answers.values())

    def __len__(self) -> int:
        return len(self.answers)

    @property
    def findings(self) -> list[str]:
        """The findings that matter most, of all analyses."""
        return [f.text for f in findings.first(a.result for a in self)]

    @property
    def warnings(self) -> list[str]:
        """What is missing, and what several of the answers warn of."""
        shared = remarks.shared((a.result for a in self), self.summary.warnings)
        told = [remark.text for remark in shared]
        alone = [w for w in self.summary.warnings if w not in told]
        return self.summary.ledger.losses() + alone + told

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the page of `klogger report --html`: one file that needs no network, with pictures
        to zoom.
        """
        from klogger.cli import report

        names = [word for name in self.answers for word in ("--analysis", name)]
        # A name may begin as an option does.
        place = os.path.join(os.curdir, os.fspath(path))
        words = [os.fspath(self.path), "--html", place, *names]
        report.make(report.parser().parse_args(words))

    def __repr__(self) -> str:
        return "\n".join(
            [self.summary.title, *(f"  {line}" for line in self.summary.lines), *map(repr, self)]
        )

    def _repr_html_(self) -> str:
        palette = Palette()
        head = "".join(f"<div>{text(line)}</div>" for line in self.summary.lines)
        found = "".join(f"<li>{text(f)}</li>" for f in self.findings)
        said = remarks.shared([a.result for a in self], self.summary.warnings)
        body = "".join(section(answer, palette, said) for answer in self)
        return (
            f"<h3>{text(self.summary.title)}</h3>{head}{warnings(self.warnings)}"
            f"<ul>{found}</ul>{body}"
        )


def frame(found: Rows) -> pd.DataFrame:
    pandas = extras.FRAMES.load()
    made: pd.DataFrame = pandas.DataFrame(found.rows, columns=found.names)
    return made


def section(answer: Answer, palette: Palette, said: Iterable[Remark] = ()) -> str:
    """One answer as HTML that needs no style and no script of its own. `said`: what stands above
    already.
    """
    title = answer.result.analysis.title or answer.name
    parts = [f"<h4>{text(title)}</h4><div>{text(answer.question)}</div>"]
    parts.append(warnings(remarks.own(answer.result, said)))
    if answer.status != "answer":
        return "".join([*parts, f"<p><em>{text(answer.reason)}</em></p>"])
    parts += [f"<p>{text(f)}</p>" for f in answer.findings]
    parts += [picture(answer, palette), table(answer.result)]
    return "".join(parts)


def picture(answer: Answer, palette: Palette) -> str:
    """A table without its picture is better than neither."""
    try:
        return answer.svg(palette) or ""
    except Failure as failure:
        return f"<p><em>{text(failure)}</em></p>"


def table(result: Result) -> str:
    columns = [result.analysis.columns.get(n, Column(n, "", False, "")) for n in result.table.names]
    head = "".join(
        f'<th title="{text(c.doc)}">{text(c.name.replace("_", " "))}</th>' for c in columns
    )
    rows = []
    for row in result.table.rows[:ROWS]:
        cells = (
            f'<td style="text-align: {"right" if c.unit in NUMBERS else "left"}">'
            f"{html.escape(show(v, c.unit))}</td>"
            for v, c in zip(row, columns, strict=True)
        )
        rows.append(f"<tr>{''.join(cells)}</tr>")
    rest = len(result.table.rows[ROWS:]) + result.table.left_out
    more = f"<div><em>and {rest:,} more rows</em></div>" if rest else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>{more}"


def warnings(found: list[str]) -> str:
    return "".join(f"<p><strong>{text(w)}</strong></p>" for w in found)


def text(value: object) -> str:
    return html.escape(printable(str(value)))
