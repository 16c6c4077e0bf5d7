# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""From a frame to what the page shows: HTML in which all names are escaped, and pictures as the
report has them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from klogger import findings, remarks
from klogger.analysis import Analysis
from klogger.drawing import NOBODY, ON_PAGE, Palette
from klogger.executor import Result
from klogger.pictures import draw
from klogger.remarks import Remark
from klogger.sections import section_of
from klogger.units import plain, printable
from klogger_lab.top.page.steady import steady

# Colours of more names than these begin anew: programs come and go for hours.
NAMES_MAX = 500


@dataclass(frozen=True)
class Shown:
    """A frame in the words of the page. `facts`: of the status line; `losses`: what is missing, and
    why; `notes`: what else the reader should know, as why there is no answer yet; `menu`: all that
    can be chosen; `first`: what is shown to those who have not chosen.
    """

    title: str
    facts: Sequence[str]
    results: Sequence[Result]
    losses: Sequence[str] = ()
    notes: Sequence[str] = ()
    menu: Sequence[Analysis] = ()
    first: Sequence[str] = ()


@dataclass
class Painter:
    """Keeps colours and axes from one frame to the next."""

    palette: Palette = field(default_factory=Palette)
    before: dict[str, dict[str, Any]] = field(default_factory=dict)

    def paint(self, shown: Shown) -> bytes:
        """One line of JSON, for all browsers."""
        if sum(map(len, self.palette.known.values())) > NAMES_MAX:
            self.palette = Palette()
        said = remarks.shared(shown.results, [])
        sections = [self.section(result, said) for result in shown.results]
        page = {
            "title": printable(shown.title),
            "facts": [printable(fact) for fact in shown.facts],
            "losses": [printable(line) for line in shown.losses],
            "notes": [printable(line) for line in [*shown.notes, *(one.text for one in said)]],
            "findings": [
                {"text": printable(f.text), "analysis": f.analysis}
                for f in findings.first(shown.results)
            ],
            "menu": [
                {"name": one.name, "title": printable(one.title or one.name)} for one in shown.menu
            ],
            "first": list(shown.first),
            "sections": sections,
        }
        return json.dumps(plain(page), ensure_ascii=False, separators=(",", ":")).encode()

    def section(self, result: Result, said: Sequence[Remark]) -> dict[str, Any]:
        name = result.analysis.name
        spec = draw(result, self.palette, ON_PAGE, width="container", subjects=NOBODY)
        rows = None
        if spec is not None:
            self.before[name] = spec = steady(spec, self.before.get(name))
            rows = spec.pop("datasets")["rows"]
        return {
            "name": name,
            "html": section_of(result, name if spec is not None else "", NOBODY, said),
            "spec": spec,
            "rows": rows,
        }
