# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""How well the rules find what was planted: recall and precision of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

# Those whose number depends on when the process gets a CPU.
BY_THE_CLOCK = {"D12", "D13", "D16", "D17", "D18", "D19", "D20", "D21", "D26"}
# What a rule finds in the work of another one that found nothing: polls at no steady pace are D5.
INSTEAD = {"D13": "D5"}
# What the rule finds may be as it should be: it is not counted as false.
INFORMATION = {"D2", "D14", "D15", "D18", "D21"}

Row = Mapping[str, Any]


@dataclass
class Score:
    """Of one rule. `false` are findings that nobody planted, `twins` those in its twin."""

    rule: str
    planted: int = 0
    missed: list[Row] = field(default_factory=list)
    true: int = 0
    false: list[Row] = field(default_factory=list)
    twins: list[Row] = field(default_factory=list)
    skipped: str = ""

    @property
    def recall(self) -> float | None:
        return (self.planted - len(self.missed)) / self.planted if self.planted else None

    @property
    def precision(self) -> float | None:
        all_of_them = self.true + len(self.false)
        return self.true / all_of_them if all_of_them else None


def truths(animal: Row) -> list[Row]:
    """What a program has done: for what it was made, and what goes with that."""
    also = [
        {**animal, "rule": rule, "object": about, "times": times}
        for rule, about, times in animal.get("also", [])
    ]
    return [animal, *also]


def matches(truth: Row, finding: Row) -> bool:
    """Within one of the number that was planted, or by the clock within a tenth."""
    rule, times = truth["rule"], truth["times"]
    slack = max(2, times // 10) if rule in BY_THE_CLOCK else 1
    return bool(
        finding["rule"] == rule
        and finding["object"] == truth["object"]
        and abs(finding["times"] - times) <= slack
    )


def is_instead(finding: Row, made: Mapping[str, Score]) -> bool:
    return any(
        finding["rule"] == instead and finding["object"] == truth["object"]
        for rule, instead in INSTEAD.items()
        if rule in made
        for truth in made[rule].missed
    )


def number(rule: str) -> int:
    return int(rule[1:])


def scores(zoo: Sequence[Row], found: Sequence[Row]) -> list[Score]:
    """By rule, of a log in which nothing but the zoo is. What the interpreter does when it starts,
    and the process that starts the others, was not planted.
    """
    made: dict[str, Score] = {}
    runners = {animal["runner"] for animal in zoo if "runner" in animal}
    zoo = [animal for animal in zoo if "rule" in animal]
    found = [finding for finding in found if finding["pid"] not in runners]

    def of(rule: str) -> Score:
        return made.setdefault(rule, Score(rule))

    there = [animal for animal in zoo if "skipped" not in animal]
    for animal in zoo:
        if "skipped" in animal and animal["planted"]:
            of(animal["rule"]).skipped = animal["skipped"]
    planted = [truth for animal in there if animal["planted"] for truth in truths(animal)]
    for truth in planted:
        score = of(truth["rule"])
        score.planted += 1
        if not any(matches(truth, finding) for finding in found):
            score.missed.append(truth)
    for finding in found:
        if any(matches(truth, finding) for truth in planted):
            of(finding["rule"]).true += 1
        elif finding["rule"] not in INFORMATION and not is_instead(finding, made):
            of(finding["rule"]).false.append(finding)
    for twin in (animal for animal in there if not animal["planted"]):
        of(twin["rule"]).twins += [
            finding
            for finding in found
            if finding["rule"] == twin["rule"]
            and (finding["pid"] == twin["pid"] or "twin" in str(finding["object"]))
        ]
    return sorted(made.values(), key=lambda score: number(score.rule))


def totals(made: Sequence[Score]) -> tuple[float, float]:
    """Recall and precision of all rules together."""
    planted = sum(score.planted for score in made)
    missed = sum(len(score.missed) for score in made)
    true = sum(score.true for score in made)
    false = sum(len(score.false) for score in made)
    return (planted - missed) / max(planted, 1), true / max(true + false, 1)
