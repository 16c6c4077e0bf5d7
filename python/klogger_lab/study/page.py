# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What studies have found, as one HTML file that needs no network, and as data for other
programs.
"""

from __future__ import annotations

import dataclasses
import string
from typing import Any

from klogger import vega
from klogger.drawing import NOBODY, ON_PAGE, Palette
from klogger.executor import Result
from klogger.html import file_of, in_script, section_of, text, warnings
from klogger.pictures import draw
from klogger.units import plain
from klogger_lab.study.model import Machine
from klogger_lab.study.runner import Done
from klogger_lab.study.text import machine_line

PAGE = """<!doctype html>
<!-- SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause -->
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>$title</title>
<style>
$style
</style>
</head>
<body>
<header>
<h1>$title</h1>
<p>$machine</p>
<nav>$contents</nav>
</header>
<main>
$studies
</main>
<div id="picked" hidden></div>
<script type="application/json" id="specs">$specs</script>
<script type="module">
$vega
$script
await startPage();
</script>
</body>
</html>
"""


def page(all_done: list[Done], machine: Machine) -> str:
    palette = Palette()
    specs: dict[str, dict[str, Any]] = {}
    title = (
        "klogger studies" if len(all_done) > 1 else f"klogger study {all_done[0].found.study.name}"
    )
    return string.Template(PAGE).substitute(
        title=text(title),
        style=file_of("style.css"),
        machine=text(machine_line(machine)),
        contents="".join(
            f'<a href="#{text(d.found.study.name)}">{text(d.found.study.title)}</a>'
            for d in all_done
        ),
        studies="".join(study_section(done, palette, specs) for done in all_done),
        specs=in_script(specs),
        vega=vega.script() if specs else "",
        script="\n".join((file_of("timeline.js"), file_of("page.js"))),
    )


def study_section(done: Done, palette: Palette, specs: dict[str, dict[str, Any]]) -> str:
    study = done.found.study
    parts = [
        f'<section id="{text(study.name)}"><h1>{text(study.title)}</h1><p class="question">{text(study.question)}</p>',
        f"<p><b>{text(study.paper)}:</b> {text(study.found)}</p>",
    ]
    if done.failure is not None:
        return "".join([*parts, warnings([f"No answer: {done.failure}"]), "</section>"])
    parts += [f"<p><b>Today:</b> {text(sentence)}</p>" for sentence in done.answer.sentences]
    parts.append(warnings(f"Cannot: {sentence}" for sentence in done.answer.cannot))
    parts.append(
        warnings(f"Arm '{arm.arm.name}': {loss}" for arm in done.arms for loss in arm.losses)
    )
    checks = "".join(
        f"<li{'' if check.ok else ' class=warning'}>{'ok' if check.ok else 'FAILED'}: "
        f"{text(check.name)}: {text(check.text)}</li>"
        for check in done.answer.checks
    )
    parts.append(f"<ul>{checks}</ul>" if checks else "")
    arms = ", ".join(f"{arm.arm.name} {arm.seconds:.1f} s" for arm in done.arms)
    parts.append(
        f'<p class="note">Took {done.seconds:.1f} of {done.budget:.0f} s: {text(arms)}.</p></section>'
    )
    parts += [result_section(study.name, result, palette, specs) for result in done.answer.results]
    return "".join(parts)


def result_section(
    study: str, result: Result, palette: Palette, specs: dict[str, dict[str, Any]]
) -> str:
    """Under a name of its own: two studies may show the same analysis."""
    named = dataclasses.replace(
        result,
        analysis=dataclasses.replace(result.analysis, name=f"{study}-{result.analysis.name}"),
    )
    spec = draw(named, palette, ON_PAGE, width="container", subjects=NOBODY)
    if spec is not None:
        specs[named.analysis.name] = spec
    return section_of(named, named.analysis.name if spec is not None else "", NOBODY)


def as_json(all_done: list[Done], machine: Machine) -> dict[str, Any]:
    return {
        "machine": plain(dataclasses.asdict(machine)),
        "studies": [study_json(done) for done in all_done],
    }


def study_json(done: Done) -> dict[str, Any]:
    study = done.found.study
    return {
        "name": study.name, "title": study.title, "question": study.question, "paper": study.paper,
        "found": study.found, "failure": str(done.failure) if done.failure else None,
        "budget_s": done.budget, "took_s": round(done.seconds, 3),
        "arms": [
            {
                "name": arm.arm.name, "parameters": plain(dict(arm.arm.parameters)), "took_s": round(arm.seconds, 3),
                "events": arm.events, "losses": arm.losses,
            }
            for arm in done.arms
        ],
        "sentences": done.answer.sentences, "cannot": done.answer.cannot,
        "checks": [plain(dataclasses.asdict(check)) for check in done.answer.checks],
        "results": [result_json(result) for result in done.answer.results],
    }  # fmt: skip


def result_json(result: Result) -> dict[str, Any]:
    one = result.analysis
    return {
        "name": one.name, "title": one.title, "question": one.question, "status": result.status,
        "reason": result.reason, "findings": result.findings, "warnings": result.warnings, "notes": one.notes,
        "columns": {name: {"unit": c.unit, "doc": c.doc} for name, c in one.columns.items()},
        "table": plain(result.table.records()), "picture": plain(result.points.records()),
    }  # fmt: skip
