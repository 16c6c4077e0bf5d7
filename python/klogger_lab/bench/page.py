# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The answer as one HTML file that needs no network."""

from __future__ import annotations

from typing import Any

from klogger.document import document, scripts, text, warnings
from klogger.drawing import Palette
from klogger.sections import named_section
from klogger_lab.bench import answer as answers
from klogger_lab.bench.answer import Answer


def page(answer: Answer) -> str:
    palette = Palette()
    specs: dict[str, dict[str, Any]] = {}
    head, results = answers.head(answer), answers.results(answer)
    sections = [named_section("bench", result, palette, specs) for result in results]
    return document(
        head.title,
        "".join(f"<p>{text(line)}</p>" for line in head.lines),
        [(name, r.analysis.title) for (_, name), r in zip(sections, results, strict=True)],
        warnings(head.warnings) + "".join(section for section, _ in sections),
        scripts=scripts(specs),
    )
