# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""One HTML file that needs no network: what the pages of all commands share. A page has no scripts
but Vega, the timeline, flame graphs, and what joins them.

Everything that comes from a log is escaped.
"""

from __future__ import annotations

import html
import json
import string
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from klogger import durations, vega
from klogger.units import printable

# In the order in which they need each other.
SCRIPTS = (
    "times.js", "columns.js", "timeline-view.js", "timeline-draw.js", "timeline-words.js",
    "timeline.js", "flame.js", "search.js", "page.js",
)  # fmt: skip


@dataclass(frozen=True)
class Part:
    """A section of a page. `body` is HTML; `flames`: see `scripts`."""

    name: str
    title: str
    body: str
    flames: Mapping[str, Any] = field(default_factory=dict)

    @property
    def html(self) -> str:
        return f'<section id="{text(self.name)}"><h2>{text(self.title)}</h2>{self.body}</section>'


def question(words: str) -> str:
    return f'<p class="question">{text(words)}</p>'


def document(
    title: str,
    header: str,
    contents: Iterable[tuple[str, str]],
    main: str,
    *,
    style: str = "",
    scripts: str = "",
) -> str:
    """A whole page. `header` and `main` are HTML; `contents`: (name of a section, its title);
    `style`: beside what all pages have; `scripts`: see `scripts`.
    """
    return string.Template(file_of("page.html")).substitute(
        title=text(title),
        style=file_of("style.css") + style,
        header=header,
        contents="".join(f'<a href="#{text(name)}">{text(words)}</a>' for name, words in contents),
        main=main,
        scripts=scripts,
    )


def scripts(
    specs: Mapping[str, Any], timeline: Any = None, flames: Mapping[str, Any] | None = None
) -> str:
    """What draws a page's pictures, by the names that their places have (`data-picture`), its
    timeline, of which this is what timeline.py makes of it, and its flame graphs (`data-flame`),
    each as flame.py makes it.
    """
    data = [f'<script type="application/json" id="specs">{in_script(specs)}</script>']
    if timeline is not None:
        data.append(
            f'<script type="application/json" id="timeline-data">{in_script(timeline)}</script>'
        )
    if flames:
        data.append(f'<script type="application/json" id="flames">{in_script(flames)}</script>')
    code = [vega.script() if specs else "", durations.script(), *map(file_of, SCRIPTS)]
    return "\n".join(
        [
            '<div id="picked" hidden></div>',
            *data,
            '<script type="module">',
            *code,
            "await startPage();",
            "</script>",
        ]
    )


def file_of(name: str) -> str:
    return resources.files("klogger").joinpath("page", name).read_text()


def text(value: object) -> str:
    return html.escape(printable(str(value)))


def in_script(value: Any) -> str:
    """JSON that cannot end the script element that it stands in."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def warnings(found: Iterable[str]) -> str:
    return "".join(f'<p class="warning">{text(w)}</p>' for w in found)
