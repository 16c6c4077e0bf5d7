# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A report over a dataset as one HTML file: tables that can be sorted, findings, and the SQL behind
each answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from klogger import remarks
from klogger.document import document, scripts, text, warnings
from klogger.drawing import NOBODY
from klogger.executor import Result
from klogger.html import findings_list
from klogger.sections import section_of


def page(title: str, lines: Iterable[str], said: Iterable[str], results: Sequence[Result]) -> str:
    """`said`: what is missing, or differs between the recordings."""
    shared = remarks.shared(results)
    alone = [*said, *(remark.text for remark in shared)]
    head = "".join(f"<p>{text(line)}</p>" for line in lines)
    return document(
        title,
        head + warnings(alone) + findings_list(results),
        [(r.analysis.name, r.analysis.title) for r in results],
        "".join(section_of(result, "", NOBODY, shared) for result in results),
        scripts=scripts({}),
    )
