# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Figure 6: a film player of two processes beside more and more loops: frames lost, CPUs, and who
sits with whom.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from klogger.analysis import Picture
from klogger.durations import duration
from klogger.executor import Result
from klogger_lab.study.model import Answer, Arm, Check, Plan, Run, Study, column, result

from . import _common as common

HOGS = list(range(12))
FEW = [0, 1, 2, 3, 4, 6, 8, 11]
PERIOD_S = 0.04
# What an arm needs to be worth anything, and what the player takes to begin.
LEAST_S = 1.0
NAMES = ("decoder", "display", "hogs", "others", "idle")
# More than that, and what others do drowns what the loops do.
QUIET = 0.2


def arms(plan: Plan) -> list[Arm]:
    program = plan.build("player.c")
    hogs = HOGS if plan.seconds >= 2.5 * len(HOGS) else FEW
    seconds = max(plan.seconds / len(hogs) - 0.3, LEAST_S)
    return [
        Arm(
            f"{n} hogs",
            [program, str(n), f"{seconds + 0.001:.3f}"],
            seconds + 0.3,
            {"hogs": n, "frames": int(seconds / PERIOD_S)},
            common.ALL_SWITCHES,
            around=common.around,
        )
        for n in hogs
    ]


def analyse(plan: Plan, runs: list[Run]) -> Answer:
    seen = [look(run) for run in runs]
    frames = max(one["frames"] for one in seen)
    tables = [shares(seen), losses(seen)]
    checks = [common.check_switches(runs), frames_check(runs), common.check_lost(runs)]
    checks += [
        common.check_busy(run) for run in runs if run.arm.parameters["hogs"] in (0, max(HOGS))
    ]
    return Answer(tables, sentences(plan, seen, frames), checks)


def look(run: Run) -> dict[str, Any]:
    """What happened in one arm, while the film was shown."""
    log, begin, end = common.log_of(run), *common.reports(run, "machine")
    start = log.start_ns
    low, high = begin["time_ns"] - start, end["time_ns"] - start
    decoder, display = (common.reports(run, role)[0] for role in ("decoder", "display"))
    cursor = common.quanta(log)
    cursor.execute(f"""
        CREATE TEMP TABLE part AS
        SELECT pid, cpu, greatest(from_ns, {low}) AS from_ns, least(to_ns, {high}) AS to_ns,
               CASE WHEN pid = {decoder["tid"]} THEN 'decoder'
                    WHEN pid = {display["tid"]} THEN 'display'
                    WHEN program = 'hog' THEN 'hogs' ELSE 'starter' END AS who
        FROM quantum WHERE to_ns > {low} AND from_ns < {high}""")
    share = dict(
        cursor.execute("SELECT who, sum(to_ns - from_ns) FROM part GROUP BY who").fetchall()
    )
    (cpus,) = cursor.execute("SELECT len(cpus) FROM klogger.recording").fetchone() or (1,)
    moves = common.one(
        cursor,
        "SELECT count(*) FROM MIGRATE WHERE pid IN ($1, $2) AND time BETWEEN $3 AND $4",
        decoder["tid"],
        display["tid"],
        low,
        high,
    )
    busy = common.busy_ns(cursor, low, high)
    seated = together(cursor, decoder["tid"], display["tid"])
    cursor.close()
    whole = (high - low) * cpus
    parts = {name: float(share.get(name, 0)) / whole for name in NAMES[:3]}
    parts["idle"] = max(1 - busy / whole, 0)
    parts["others"] = max(1 - sum(parts[n] for n in ("decoder", "display", "hogs", "idle")), 0)
    return {
        "hogs": int(run.arm.parameters["hogs"]),
        "frames": int(run.arm.parameters["frames"]),
        "lost": display["count"],
        "parts": parts,
        "moves": moves,
        "seconds": (high - low) / 1e9,
        "together": seated,
    }


def together(cursor: Any, one: int, other: int) -> float | None:
    """The part of the time in which both sat on one CPU: each sits where it ran last."""
    seat = """SELECT cpu, from_ns,
                     lead(from_ns, 1, (SELECT max(to_ns) FROM part)) OVER (ORDER BY from_ns)
                       AS to_ns
              FROM part WHERE pid = {}"""
    value = common.one(
        cursor,
        f"""
        SELECT sum(ns) FILTER (same) / nullif(sum(ns), 0) FROM (
            SELECT a.cpu = b.cpu AS same,
                   least(a.to_ns, b.to_ns) - greatest(a.from_ns, b.from_ns) AS ns
            FROM ({seat.format(one)}) AS a
            JOIN ({seat.format(other)}) AS b ON a.from_ns < b.to_ns AND b.from_ns < a.to_ns)""",
    )
    return None if value is None else float(value)


def shares(seen: list[dict[str, Any]]) -> Result:
    columns = [
        column("loops", "loops beside the player"),
        *(column(name, f"share of all CPUs: {name}", "share") for name in NAMES),
        column("together", "time in which decoder and display sat on one CPU", "share", bar=True),
        column("moves", "migrations of the two in a second", "per_s"),
    ]
    others = [column("share", "share of all CPUs", "share"), column("who", "who had the CPU")]
    rows = [
        [s["hogs"], *(s["parts"][n] for n in NAMES), s["together"], s["moves"] / s["seconds"]]
        for s in seen
    ]
    points = [[s["parts"][n], s["hogs"], n] for s in seen for n in NAMES]
    picture = Picture("stacked", {"x": "share", "y": "loops", "colour": "who"})
    question = "Who has the CPUs, and where do the two processes of the player sit?"
    return common.figure(
        "shares", "CPUs", question, columns, rows, picture, others=others, points=points
    )


def losses(seen: list[dict[str, Any]]) -> Result:
    columns = [
        column("loops", "loops beside the player"),
        column("frames", "frames of the film", "count"),
        column("lost", "not shown in time", "count"),
        column("lost_share", "frames lost", "share", bar=True),
    ]
    rows = [[s["hogs"], s["frames"], s["lost"], s["lost"] / s["frames"]] for s in seen]
    picture = Picture("bars", {"x": "lost_share", "y": "loops"})
    question = "How many frames come too late, by the player's own count?"
    notes = [
        "The paper's Figure 6 has no numbers in its text: worst at 3 loops on 4 CPUs, and better"
        " again at 10."
    ]
    return result("frames", "Frames lost", question, columns, rows, picture, notes=notes)


def sentences(plan: Plan, seen: list[dict[str, Any]], frames: int) -> list[str]:
    worst, last = max(seen, key=lambda s: s["lost"]), seen[-1]
    said = [
        f"Of {frames} frames, the player alone loses {seen[0]['lost']}, and with {last['hogs']}"
        f" loops {last['lost']}; the most with {worst['hogs']}: {worst['lost']}."
    ]
    others = max(s["parts"]["others"] for s in seen)
    if others > QUIET:
        said.append(
            f"Other programs of this machine had up to {100 * others:.0f} % of its CPUs: these"
            " numbers say little about the loops. Repeat it when nothing else runs."
        )
    better = [b for a, b in pairwise(seen) if b["lost"] < a["lost"] - 0.05 * frames]
    if better:
        said.append(
            "As in the paper, more load helps at times: fewer frames are lost than with less load"
            f" at {', '.join(str(s['hogs']) for s in better)} loops."
        )
    else:
        said.append("Unlike in the paper, more load never helps by more than 5 % of the frames.")
    known = [s for s in seen if s["together"] is not None]
    if len(known) > 2 and plan.machine.cpus > 1:
        most = max(known, key=lambda s: s["together"])
        said.append(
            f"Decoder and display sit together most with {most['hogs']} loops:"
            f" {100 * most['together']:.0f} % of the time, and"
            f" {100 * most['lost'] / most['frames']:.0f} % of the frames are lost."
        )
    return said


def frames_check(runs: list[Run]) -> Check:
    """The decoder's work is known: frames times 14 ms. The log must have at least that."""
    bad, total = [], 0.0
    for run in runs:
        decoder = common.reports(run, "decoder")[0]
        cursor = common.quanta(common.log_of(run))
        had = float(
            common.one(
                cursor,
                "SELECT coalesce(sum(to_ns - from_ns), 0) FROM quantum WHERE pid = $1",
                decoder["tid"],
            )
        )
        cursor.close()
        total += had
        if had < 0.97 * decoder["count"] * 14e6:
            bad.append(f"{run.arm.name}: {duration(had)} for {decoder['count']} frames")
    text = f"decoders had {duration(total)} in all, 14 ms or more for each frame (less 3 %)"
    return Check("work of the decoder", not bad, "; ".join(bad) or text)


STUDY = Study(
    name="migration",
    title="Load that helps",
    question="Does a film player lose more frames, the more other programs run?",
    paper="Figure 6",
    found=(
        "Frames are lost as load grows, but not steadily: with 3 loops on 4 CPUs, player and X"
        " server are pushed onto one CPU and get into each other's way; with 10 they sit apart"
        " again, and fewer frames are lost."
    ),
    schemata=("scheduler", "switching"),
    arms=arms,
    analyse=analyse,
    seconds=60,
    least_seconds=22,
)
