# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""chat: rooms of users who talk by way of a server, normally and at the lowest priority."""

from __future__ import annotations

from typing import Any

from klogger.analysis import Picture
from klogger_lab.study.model import Answer, Arm, Check, Plan, Run, Study, column, result

from . import _common as common
from ._common import median

USERS = 20
# Messages a second with 10 rooms in January 2002, medians of three runs: the old and the new (O(1))
# scheduler.
PAPER = {"normal": (110_619, 131_250), "nice 19": (83_460, 609_942)}
# The chat goes on until all has been heard that was said, and logs some 10 MB a second.
LONGEST_S = 5.0


def arms(plan: Plan) -> list[Arm]:
    program = plan.build("chat.c")
    seconds = min(max(plan.seconds / (2 * len(PAPER)), 0.3), LONGEST_S)
    words = [program, str(max(plan.machine.cpus // 2, 1)), str(USERS), f"{seconds:.2f}"]
    parameters = {"rooms": max(plan.machine.cpus // 2, 1), "users": USERS}
    return [
        Arm("normal", words, 2 * seconds, parameters, ["--buffer-size=16M"]),
        Arm(
            "nice 19", ["nice", "-n", "19", *words], 2 * seconds, parameters, ["--buffer-size=16M"]
        ),
    ]


def analyse(plan: Plan, runs: list[Run]) -> Answer:
    seen = [look(run) for run in runs]
    columns = [
        column("arm", "priority"),
        column("messages", "messages that users heard", "count"),
        column("per_second", "messages in a second", "per_s", bar=True),
        column("switches", "switches for each message"),
        column("wakeups", "wake-ups for each message"),
        column("other_cpu", "wake-ups to the queue of another CPU", "share"),
        column("paper_old", "messages in a second with the old scheduler, 8 CPUs", "per_s"),
        column("paper_new", "messages in a second with the O(1) scheduler, 8 CPUs", "per_s"),
    ]
    rows = [
        [
            s["arm"],
            s["heard"],
            s["rate"],
            s["switches"] / n,
            s["wakeups"] / n,
            s["other"],
            *PAPER[s["arm"]],
        ]
        for s in seen
        for n in [max(s["heard"], 1)]
    ]
    picture = Picture("bars", {"x": "per_second", "y": "arm"})
    table = result(
        "chat",
        "Messages",
        "How many messages a second, and what do they cost the scheduler?",
        columns,
        rows,
        picture,
    )
    return Answer(
        [table],
        sentences(seen),
        [common.check_switches(runs), heard_check(seen), common.check_lost(runs)],
    )


def look(run: Run) -> dict[str, Any]:
    frame = common.reports(run, "chat")[0]
    log, start = common.log_of(run), common.log_of(run).start_ns
    low, high = frame["begin_ns"] - start, frame["end_ns"] - start
    cursor = log.cursor()
    found = cursor.execute(f"""
        SELECT (SELECT count(*) FROM SCHEDOUT WHERE time BETWEEN {low} AND {high}),
               count(*), count(*) FILTER (w.cpu <> a.runq) / nullif(count(*), 0)
        FROM (SELECT * FROM ADD_TO_RUNQ WHERE is_new = 0 AND time BETWEEN {low} AND {high}) AS a
        ASOF JOIN TRY_TO_WAKEUP AS w ON a.pid = w.pid AND a.time >= w.time""").fetchone()
    cursor.close()
    switches, wakeups, other = found or (0, 0, None)
    said, heard = (
        sum(r["count"] for r in common.reports(run, role)) for role in ("sender", "receiver")
    )
    return {
        "arm": run.arm.name,
        "said": said,
        "heard": heard,
        "rate": heard * 1e9 / max(high - low, 1),
        "switches": switches,
        "wakeups": wakeups,
        "other": other,
        "users": int(run.arm.parameters["users"]),
    }


def heard_check(seen: list[dict[str, Any]]) -> Check:
    """What one says, all users of the room hear."""
    bad = [
        f"{s['arm']}: {s['said']:,} said, {s['heard']:,} heard"
        for s in seen
        if s["heard"] != s["said"] * s["users"] or not s["said"]
    ]
    text = (
        f"{sum(s['said'] for s in seen):,} messages were said, and each was heard by {USERS} users"
    )
    return Check("messages", not bad, "; ".join(bad) or text)


def sentences(seen: list[dict[str, Any]]) -> list[str]:
    rates = {s["arm"]: s["rate"] for s in seen}
    said = [
        f"{' and '.join(f'{rate:,.0f} messages a second ({arm})' for arm, rate in rates.items())}."
    ]
    if len(rates) == 2 and rates["normal"]:
        change = 100 * (rates["nice 19"] / rates["normal"] - 1)
        said.append(
            f"At nice 19 that is {change:+.0f} %. With the O(1) scheduler of 2002 it was +365 %,"
            " for threads with long time slices took their CPUs from each other less often."
        )
    costs = [s["switches"] / s["heard"] for s in seen if s["heard"]]
    if costs:
        said.append(f"A message costs {median(costs):.2f} switches.")
    return said


STUDY = Study(
    name="chat",
    title="A chat server",
    question="How many messages a second can a chat server with many threads pass on?",
    paper="chat, O(1) scheduler announcement of January 2002",
    found=(
        "10 rooms of 20 users on 8 CPUs: some 110,000 messages a second with the old scheduler and"
        " 131,000 with the O(1) scheduler; at nice 19 some 83,000 and 610,000."
    ),
    schemata=("scheduler",),
    arms=arms,
    analyse=analyse,
    seconds=20,
    least_seconds=5,
)
