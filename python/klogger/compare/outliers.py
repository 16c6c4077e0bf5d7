# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Which host, recording, program or CPU of a dataset is not like its peers (docs/datasets.md).

The distance of a value from the median of its peers is measured in spreads: a spread is 1.4826
times the median distance, which is the standard deviation of normal values. Values that are all
positive are compared as logarithms. Of many values, some are far away by chance: what is reported
is chance in one of twenty cases at most, in the mean (Benjamini and Hochberg).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import duckdb
import numpy as np
import pandas as pd

from klogger.analysis import Analysis
from klogger.compare.extract import NUMBER_OF_THREAD, NUMBERS, key_columns, unit
from klogger.compare.stats import VALUES_BEYOND, student_cdf
from klogger.dataset import Dataset, Entry, combine, fleet
from klogger.sqltext import identifier

# Fewer values, with the one that is judged, say too little about the spread.
VALUES_MIN = 9
# What differs by less is of no interest, however sure it is.
RATIO_MIN = 1.25
# Of what is reported, the part that is chance, in the mean.
CHANCE = 0.05
NORMAL = 1.4826
# The median distance is known as well as a standard deviation of 0.37 times as many values.
# Measured values are far away more often than normal ones: with so few degrees of freedom, that is
# allowed for.
EFFICIENCY, FREEDOM_MAX = 0.37, 6
# No spread is smaller: of positive numbers, as a part of them. Of counts, it is their root.
PART_MIN = 0.02
# What is nearer is not looked at: it is never reported.
SPREADS_MIN = 4.0

# Of the values of peers, so many are kept for a picture.
OTHERS_MAX = 99

# One event decides them, such as a call during which another program ran.
EXTREMES = ("max", "min")

# Of each kind, who is judged, and which values are those of peers.
KINDS = {
    "host": (["host"], ["group", "row", "column"]),
    "recording": (["log"], ["group", "row", "column"]),
    "program": (["program"], ["group", "without_program", "column"]),
    "cpu": (["host", "cpu"], ["group", "host", "without_cpu", "column"]),
}
# What is known of each recording without an analysis.
RECORDING = {"seconds": "s", "events_per_second": "per_s", "lost": "count"}


@dataclass(frozen=True)
class Outlier:
    """`of`: who it is. `effect`: the ratio of `value` and `median`, or if `is_ratio` is false their
    difference. `size`: how great that is, whatever the unit. `log`: a recording in which it is
    seen. `others`: the values of its peers in ascending order, or if there are many, so many of
    their quantiles. `also`: how many other values of this analysis are outliers.
    """

    kind: str
    of: str
    host: str
    log: str
    group: tuple[str, ...]
    schema: str
    analysis: str
    row: str
    column: str
    unit: str
    value: float
    median: float
    spread: float
    peers: int
    chance: float
    effect: float
    is_ratio: bool
    size: float
    others: tuple[float, ...] = ()
    also: int = 0

    @property
    def subject(self) -> tuple[object, ...]:
        """What has one line in a report."""
        return (self.kind, self.of, self.host, self.group, self.schema, self.analysis)


@dataclass
class Found:
    """`tested`: how many values were compared with those of their peers."""

    entries: list[Entry]
    damage: dict[str, str]
    notes: list[str]
    tested: int = 0
    outliers: list[Outlier] = field(default_factory=list)


def find(
    dataset: Dataset,
    entries: Sequence[Entry],
    names: Sequence[str] = (),
    by: Sequence[str] = (),
    on: str = "here",
    progress: Callable[[str], None] = lambda _: None,
) -> Found:
    """`by`: peers have the same values of these."""
    with fleet.gathered(dataset, entries, names, on, progress) as (_, taken, chosen):
        return among(taken, chosen, by, whole=not names)


def among(
    taken: fleet.Taken, chosen: Iterable[Analysis], by: Sequence[str], *, whole: bool
) -> Found:
    """`whole`: the recordings themselves as well, without an analysis."""
    found = Found(taken.entries, taken.damage, taken.notes())
    groups = {e.log: (e.host, tuple(e.value(b) for b in by)) for e in found.entries}
    tables = itertools.chain(
        [("", "recording", of_recordings(taken))] if whole else [],
        ((one.schema, one.name, numbers(taken.task(one, by))) for one in chosen),
    )
    candidates: list[Outlier] = []
    for schema, name, table in tables:
        tested, some = judged(with_hosts(table, groups))
        found.tested += tested
        candidates += [Outlier(**one, schema=schema, analysis=name) for one in some]
    found.outliers = ranked(beyond_chance(candidates, found.tested))
    return found


def of_recordings(taken: fleet.Taken) -> pd.DataFrame:
    rows = []
    for entry in taken.entries:
        seconds, logged = taken.seconds[entry.log], float(entry.said["events_logged"])
        values = (seconds, logged / seconds if seconds else np.nan, float(entry.said["lost"]))
        rows += [
            (entry.log, "", name, unit, value)
            for (name, unit), value in zip(RECORDING.items(), values, strict=True)
        ]
    return pd.DataFrame(rows, columns=["log", "row", "column", "unit", "value"])


def numbers(task: combine.Task) -> pd.DataFrame:
    """All numbers of an analysis's rows: of which log, row and column. Rows of one name are told
    apart by their rank in the log.
    """
    one = task.analysis
    if not task.has_rows:
        return pd.DataFrame()
    with duckdb.connect() as connection:
        combine.load(connection, task, sorted({r.group for r in task.recordings}))
        described = connection.execute("DESCRIBE klogger.everything").fetchall()
        types = {str(n): str(kind) for n, kind, *_ in described if not n.startswith("klogger ")}
        names = combine.shown(types)
        rules = {n: one.columns[n].rule for n in names if n in one.columns}
        marked = [n for n in names if rules.get(n) == "key"]
        keys = list(dict.fromkeys([*key_columns(one, names), *marked]))
        left_out = (*keys, *(n for n, rule in rules.items() if rule in EXTREMES))
        metrics = [n for n in names if unit(one, n) in NUMBERS and n not in left_out]
        columns = [f"{identifier(k)}::VARCHAR AS {identifier(k)}" for k in keys]
        columns += [f"{number(n, rules.get(n, ''), types)} AS {identifier(n)}" for n in metrics]
        listed = ", ".join([combine.LOG, *columns])
        frame = connection.execute(
            f"SELECT {listed} FROM klogger.everything ORDER BY {combine.LOG}, {combine.ROW}"
        ).df()
    named = names_of(frame, keys, types)
    parts = [
        named.assign(column=n, unit=unit(one, n), value=frame[n].astype(float)) for n in metrics
    ]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def number(name: str, rule: str, types: Mapping[str, str]) -> str:
    """A quantile is one only with some values beyond it; else it is an extreme."""
    value = f"TRY_CAST({identifier(name)} AS DOUBLE)"
    part, _, histogram = rule.partition(" of ")
    if histogram not in types:
        return value
    beyond = f"list_sum(map_values({identifier(histogram)})) * {1 - float(part)!r}"
    return f"CASE WHEN {beyond} >= {VALUES_BEYOND} THEN {value} END"


def names_of(frame: pd.DataFrame, keys: Sequence[str], types: Mapping[str, str]) -> pd.DataFrame:
    """Of each row: its name, its program and CPU, and its name without these."""
    plain = {k: frame[k].fillna("").str.replace(NUMBER_OF_THREAD, "", regex=True) for k in keys}
    texts = {k: t if types[k] == "VARCHAR" else f"{k} " + t for k, t in plain.items()}

    def joined(without: str = "") -> Any:
        some = [text for key, text in texts.items() if key != without]
        return some[0].str.cat(some[1:], sep=", ") if some else ""

    found = pd.DataFrame({"log": frame["klogger log"]})
    row = pd.Series(joined(), index=frame.index, dtype=object)
    rank = row.groupby([found["log"], row]).cumcount() + 1
    found["row"] = row.where(rank == 1, row + " #" + rank.astype(str))
    for key in ("program", "cpu"):
        if key in plain:
            found[key], found[f"without_{key}"] = plain[key], joined(key)
    return found


def with_hosts(
    table: pd.DataFrame, groups: Mapping[str, tuple[str, tuple[str, ...]]]
) -> pd.DataFrame:
    if not len(table):
        return table
    finite = table[np.isfinite(table["value"])]
    places = finite["log"].map(groups)
    return finite.assign(host=places.str[0], group=places.str[1])


def judged(table: pd.DataFrame) -> tuple[int, list[dict[str, Any]]]:
    """How many values were compared, and those that are far from their peers'."""
    tested, found = 0, []
    for kind, (of, peers) in KINDS.items():
        if not set(of) | set(peers) <= set(table.columns):
            continue
        if kind == "recording" and table["log"].nunique() == table["host"].nunique():
            # Then the hosts are the recordings.
            continue
        each = distances(table, of, peers)
        tested += len(each)
        size = np.log(RATIO_MIN)
        far = each[(each["distance"] > SPREADS_MIN * each["spread"]) & (each["size"] >= size)]
        found += described(kind, of, peers, far, each, table)
    return tested, found


def distances(table: pd.DataFrame, of: list[str], peers: list[str]) -> pd.DataFrame:
    """One value of each, the median of its recordings', and how far it is from all of them."""
    keys = list(dict.fromkeys([*peers, *of, "unit"]))
    each = table.groupby(keys, sort=False)["value"].median().reset_index()
    each["values"] = each.groupby(peers, sort=False)["value"].transform("size")
    each = each[each["values"] >= VALUES_MIN].copy()
    series = each.groupby(peers, sort=False)
    least = series["value"].transform("min")
    each["is_ratio"] = least > 0
    each["median"] = series["value"].transform("median")
    scaled = each["value"].where(~each["is_ratio"], np.log(each["value"].clip(lower=1e-300)))
    middle = scaled.groupby([each[p] for p in peers], sort=False).transform("median")
    each["distance"] = (scaled - middle).abs()
    spread = each.groupby(peers, sort=False)["distance"].transform("median")
    # The correction for few values is that of Croux and Rousseeuw.
    spread *= NORMAL * each["values"] / (each["values"] - 0.8)
    each["spread"] = np.maximum(spread, least_spread(each))
    each["size"] = sizes(each, least)
    return each[each["spread"] > 0]


def least_spread(each: pd.DataFrame) -> pd.Series[float]:
    """Values that are equal in most cases have no spread of their own."""
    median = each["median"].abs()
    is_count = each["unit"] == "count"
    part = pd.Series(PART_MIN, index=each.index).where(each["is_ratio"], PART_MIN * median)
    root = np.sqrt(np.maximum(median, 1.0))
    return part.where(~is_count, np.where(each["is_ratio"], root / np.maximum(median, 1.0), root))


def sizes(each: pd.DataFrame, least: pd.Series[float]) -> pd.Series[float]:
    """As the logarithm of a ratio. What is smaller than the spread counts as much as that."""
    value, median = (np.maximum(each[c], each["spread"]) for c in ("value", "median"))
    size = np.log(value / median).abs()
    signed = np.log(np.maximum(each["distance"] / each["spread"], 1.0))
    return size.where(least >= 0, signed).where(~each["is_ratio"], each["distance"])


def described(
    kind: str,
    of: list[str],
    peers: list[str],
    far: pd.DataFrame,
    each: pd.DataFrame,
    table: pd.DataFrame,
) -> list[dict[str, Any]]:
    """Each with the recording in which it is furthest away."""
    keys = list(dict.fromkeys([*peers, *of]))
    some = each.merge(far[peers].drop_duplicates(), on=peers)
    series = {key: values.sort_values() for key, values in some.groupby(peers)["value"]}
    names = ["log", "host", "row"]
    merged = far.merge(
        table[list(dict.fromkeys([*keys, *names, "value"]))], on=keys, suffixes=("", "_here")
    )
    direction = np.sign(merged["value"] - merged["median"])
    merged["away"] = (merged["value_here"] - merged["median"]) * direction
    merged = merged.sort_values(["away", "log"], ascending=[False, True], kind="stable")
    found = []
    for one in merged.drop_duplicates(keys).to_dict("records"):
        z, values = one["distance"] / one["spread"], int(one["values"])
        ratio = bool(one["is_ratio"])
        found.append(
            {
                "kind": kind, "of": str(one[of[-1]]), "host": one["host"], "log": one["log"],
                "group": one["group"], "row": one["row"], "column": one["column"],
                "unit": one["unit"], "value": one["value"], "median": one["median"],
                "spread": one["spread"], "peers": values - 1, "chance": chance_of(z, values),
                "effect": one["value"] / one["median"] if ratio else one["value"] - one["median"],
                "is_ratio": ratio, "size": one["size"],
                "others": others(series[tuple(one[p] for p in peers)], one["value"]),
            }
        )  # fmt: skip
    return found


def others(values: pd.Series[float], own: float) -> tuple[float, ...]:
    """Those of the peers, in ascending order."""
    peers = np.delete(values.to_numpy(), values.searchsorted(own))
    if len(peers) > OTHERS_MAX:
        peers = np.quantile(peers, np.linspace(0, 1, OTHERS_MAX))
    return tuple(map(float, peers))


def chance_of(z: float, values: int) -> float:
    """Of a value that is no outlier: how likely it is so many spreads away."""
    freedom = min(max(int(EFFICIENCY * (values - 1)), 1), FREEDOM_MAX)
    return max(2 * (1 - student_cdf(z, freedom)), 0.0)


def beyond_chance(candidates: Iterable[Outlier], tested: int) -> list[Outlier]:
    """As many as have one that is chance among twenty, in the mean."""
    by_chance = sorted(candidates, key=lambda one: one.chance)
    count = 0
    for place, one in enumerate(by_chance, 1):
        if one.chance <= CHANCE * place / tested:
            count = place
    return by_chance[:count]


def ranked(found: Iterable[Outlier]) -> list[Outlier]:
    """The greatest first: one of each subject. A host that is an outlier makes its recordings ones,
    which is not said again.
    """
    subjects: dict[tuple[object, ...], list[Outlier]] = {}
    for one in sorted(found, key=lambda o: (-o.size, o.schema, o.analysis, o.row, o.column, o.of)):
        subjects.setdefault(one.subject, []).append(one)
    hosts = {(o.host, o.group, o.schema, o.analysis) for (o, *_) in subjects.values()
             if o.kind == "host"}  # fmt: skip
    return [
        replace(one, also=len(more))
        for one, *more in subjects.values()
        if one.kind != "recording" or (one.host, one.group, one.schema, one.analysis) not in hosts
    ]
