# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Of 200 mutexes one is held for long, in some rounds: does the log name it, and how it is reached?

The rounds differ in their mutexes, which are in one area of memory each, and in which of them is
the guilty one, if any. Only the checks look at what the program says about that.
"""

from __future__ import annotations

from klogger.durations import duration
from klogger_lab.study.model import Answer, Arm, Check, Plan, Run, Study

from ._contention import Round, Seen, seen
from ._tables import convoys_table, guilty_table, latency_table, times_table

# Threads, tries before a thread waits, and a seed with which two of the first three rounds have a
# guilty mutex.
LOADS = ((2, 100, 1), (4, 100, 1), (8, 100, 4), (16, 100, 3), (4, 0, 1))
ROUNDS = 40
CONVOYS = 7
# Seconds that the arm with the convoys takes.
CONVOY_SECONDS = 1.0
# What is asked for: of the rounds with at least so many threads all but this part, or one.
LEAST_THREADS = 4
MOST_MISSED = 0.05
# Of the program's own time.
TIME_SLACK = 0.05


def arms(plan: Plan) -> list[Arm]:
    program = plan.build("contention.c")
    each = max((plan.seconds - CONVOY_SECONDS) / len(LOADS), 0.5)
    # Before all others: what is measured is the wait for a lock, not that for a CPU.
    before = ["nice", "-n", "-20", program]
    found = []
    for threads, spin, seed in LOADS:
        words = [
            *before,
            "rounds",
            str(threads),
            str(spin),
            str(ROUNDS),
            f"{each:.1f}",
            str(seed),
        ]
        name = f"{threads} threads" if spin else f"{threads} threads, no spinning"
        found.append(Arm(name, words, each, {"threads": threads, "spin": spin}))
    words = [*before, "convoys", "6", str(CONVOYS)]
    found.append(Arm("convoys", words, CONVOY_SECONDS, {"threads": 6}))
    return found


def analyse(_: Plan, runs: list[Run]) -> Answer:
    answer = Answer()
    all_seen = [one for run in runs if (one := seen(run)) is not None]
    loads = [one for one in all_seen if one.rounds]
    answer.results = [guilty_table(loads), times_table(loads), latency_table(loads)]
    answer.results += [convoys_table(one) for one in all_seen if one.planted_convoys]
    answer.sentences = sentences(loads)
    answer.checks = checks(all_seen)
    answer.cannot = list(CANNOT)
    return answer


def many(loads: list[Seen]) -> list[Round]:
    """The rounds with a guilty mutex, and with as many threads as the question needs."""
    return [r for one in loads if one.threads >= LEAST_THREADS for r in one.rounds if r.planted]


def enough(found: int, rounds: int) -> bool:
    """One may always be missing: one holder that loses its CPU to another program for long."""
    return rounds > 0 and rounds - found <= max(1, MOST_MISSED * rounds)


def sentences(loads: list[Seen]) -> list[str]:
    rounds = many(loads)
    clean = [r for one in loads for r in one.rounds if not r.planted]
    first = sum(r.first for r in rounds)
    alarms = sum(r.named is not None for r in clean)
    said = [
        (
            f"With {LEAST_THREADS} threads or more the guilty one of 200 mutexes was first in the"
            f" league in {first} of {len(rounds)} rounds; the rule raised {alarms} false alarms in"
            f" {len(clean)} rounds without one."
        ),
    ]
    spun = [(one, sum(r.spun for r in one.rounds), sum(r.calls for r in one.rounds))
            for one in loads if one.spin and one.threads >= LEAST_THREADS]  # fmt: skip
    if spun:
        one, by_trying, calls = max(spun, key=lambda s: s[1])
        said.append(
            f"Spinning is invisible to the log: with {one.threads} threads {by_trying:,} mutexes"
            f" were got by trying again, and {calls:,} by pthread_mutex_lock(), with"
            f" {one.waits:,} waits in the kernel."
        )
    said.append(
        "The source proposed such a league, and measured none: its only numbers are the latencies"
        " of two places in one program, which are beside today's."
    )
    return said


def checks(all_seen: list[Seen]) -> list[Check]:
    loads = [one for one in all_seen if one.rounds]
    rounds = many(loads)
    first = sum(r.first for r in rounds)
    named = sum(r.right for r in rounds)
    path = sum(r.path for r in rounds if r.first)
    clean = [r for one in loads for r in one.rounds if not r.planted]
    alarms = sum(r.named is not None for r in clean)
    strangers = sum(one.strangers for one in loads)
    made = [
        Check("the guilty mutex is first in the league", enough(first, len(rounds)),
              f"{first} of {len(rounds)} rounds with {LEAST_THREADS} threads or more"),
        Check("the rule names the guilty mutex", enough(named, len(rounds)),
              f"{named} of the same {len(rounds)} rounds"),
        Check("its call path is right", 0 < first == path,
              f"{path} of the {first} rounds in which it is first: waited for in write_journal(),"
              " given back in it or its caller"),
        Check("no false alarm", alarms + strangers == 0,
              f"{alarms} in {len(clean)} rounds without a guilty mutex, {strangers} for locks of no"
              " round"),
    ]  # fmt: skip
    made += [time_check(one) for one in loads if one.threads >= LEAST_THREADS]
    made += [switch_check(one) for one in loads]
    for one in all_seen:
        if one.planted_convoys:
            made.append(
                Check("the planted convoys are found", one.convoys == one.planted_convoys,
                      f"{one.convoys} found, {one.planted_convoys} planted")
            )  # fmt: skip
    return made


def time_check(one: Seen) -> Check:
    own = sum(r.own for r in one.rounds if r.planted)
    logged = sum(r.logged for r in one.rounds if r.planted)
    text = f"{duration(logged)} logged, {duration(own)} by the program's own clock"
    return Check(
        f"time of waiting for the guilty mutex, {one.name}",
        own > 0 and abs(own - logged) <= TIME_SLACK * own,
        text,
    )


def switch_check(one: Seen) -> Check:
    """The program sleeps in waits for locks only, but for its start, its end, and page faults."""
    rest = one.switches - one.slept
    text = f"{one.slept:,} waits slept, {one.switches:,} voluntary switches of getrusage()"
    return Check(
        f"waits that slept are voluntary switches, {one.name}",
        0 <= rest <= 0.05 * one.switches + 20,
        text,
    )


CANNOT = (
    (
        "The source's signature of a spinning loop (bus use, cycles per instruction, shared data):"
        " it needs hardware counters, which this study does not use."
    ),
    (
        "Placing threads by their use of resources (floating point beside memory): the source asks"
        " for it, and did not measure it. It needs the same counters."
    ),
    (
        "Its main proposal, sequences of events as breakpoints: a log can be searched for them"
        " afterwards, and does not stop the program."
    ),
    "Locks of the kernel: 'klogger study locks' and the schema 'locking' have them.",
    "Locks that processes share: each process has its own address for them.",
)

STUDY = Study(
    name="contention",
    title="One guilty lock among many",
    question="Which of hundreds of locks makes threads wait, from where, and who holds it?",
    paper=(
        "M. Alt, Ideas on improving Linux infrastructure for performance on multi-core platforms,"
        " Linux Symposium 2006, volume 1"
    ),
    found=(
        "A proposal: sequences of performance events as triggers, with hot locks as the example."
        " It shows a sample of a profile, latencies of two places in a program, and leaves its"
        " usefulness to later research."
    ),
    schemata=("futex",),
    arms=arms,
    analyse=analyse,
    seconds=100,
    least_seconds=25,
)
