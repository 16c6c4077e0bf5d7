# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What studies have found, as one HTML file that needs no network, and as data for other
programs.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from klogger.document import document, scripts, text, warnings
from klogger.drawing import Palette
from klogger.executor import Result
from klogger.sections import named_section
from klogger.units import plain
from klogger_lab.machine import Machine
from klogger_lab.study.runner import Done


def page(all_done: list[Done], machine: Machine) -> str:
    palette = Palette()
    specs: dict[str, dict[str, Any]] = {}
    title = (
        "klogger studies" if len(all_done) > 1 else f"klogger study {all_done[0].found.study.name}"
    )
    studies = "".join(study_section(done, palette, specs) for done in all_done)
    return document(
        title,
        f"<p>{text(machine.line())}</p>",
        [(d.found.study.name, d.found.study.title) for d in all_done],
        studies,
        scripts=scripts(specs),
    )


def study_section(done: Done, palette: Palette, specs: dict[str, dict[str, Any]]) -> str:
    study = done.found.study
    parts = [
        f'<section id="{text(study.name)}"><h1>{text(study.title)}</h1>'
        f'<p class="question">{text(study.question)}</p>',
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
        f'<p class="note">Took {done.seconds:.1f} of {done.budget:.0f} s: {text(arms)}.</p>'
        "</section>"
    )
    parts += [named_section(study.name, r, palette, specs)[0] for r in done.answer.results]
    return "".join(parts)


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
                "name": arm.arm.name, "parameters": plain(dict(arm.arm.parameters)),
                "took_s": round(arm.seconds, 3), "events": arm.events, "losses": arm.losses,
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
        "reason": result.reason, "findings": result.findings, "warnings": result.warnings,
        "notes": one.notes,
        "columns": {name: {"unit": c.unit, "doc": c.doc} for name, c in one.columns.items()},
        "table": plain(result.table.records()), "picture": plain(result.points.records()),
    }  # fmt: skip
