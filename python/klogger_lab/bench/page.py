# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The answer as one HTML file that needs no network."""

from __future__ import annotations

import string
from typing import Any

from klogger import vega
from klogger.drawing import Palette
from klogger.html import file_of, in_script, text, warnings
from klogger_lab.bench import answer as answers
from klogger_lab.bench.answer import Answer
from klogger_lab.study.page import PAGE, result_section


def page(answer: Answer) -> str:
    """As studies have it, for it holds the same: what was computed, and pictures of it."""
    palette = Palette()
    specs: dict[str, dict[str, Any]] = {}
    head, results = answers.head(answer), answers.results(answer)
    sections = [result_section("bench", result, palette, specs) for result in results]
    return string.Template(PAGE).substitute(
        title=text(head.title),
        style=file_of("style.css"),
        machine="</p><p>".join(map(text, head.lines)),
        contents="".join(
            f'<a href="#bench-{text(r.analysis.name)}">{text(r.analysis.title)}</a>'
            for r in results
        ),
        studies="".join([warnings(head.warnings), *sections]),
        specs=in_script(specs),
        vega=vega.script() if specs else "",
        script="\n".join((file_of("timeline.js"), file_of("page.js"))),
    )
