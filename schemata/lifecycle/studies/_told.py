# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The study `threads`: which thread takes a signal, how long a cancellation takes, and how often
timers expire.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from klogger.analysis import Picture
from klogger.executor import Result, Rows
from klogger_lab.study.model import Arm, Check, Plan, Run, column

from ._libraries import figure, first, here, log_of, program, reports

SIGUSR1 = 10
# What C libraries cancel threads with.
CANCEL = (32, 33)
# si_code of a POSIX timer.
SI_TIMER = -2
# Signals of each kind, cancellations of each kind; in less time the first.
COUNTS = ((101, 11), (503, 101))
# Seconds that timers run, and the rest of an arm.
TIMERS_LEAST, TIMERS_MOST = 0.5, 5.0
REST = 0.5
# What happens in an interrupt is not always reported to programs of the kernel.
SIGNALS_MISSED = 0.02


def arms(plan: Plan) -> list[Arm]:
    libraries = here(threads=True)
    seconds = min(max(plan.seconds / 6 / len(libraries) - REST, TIMERS_LEAST), TIMERS_MOST)
    signals, cancels = COUNTS[seconds > 2 * TIMERS_LEAST]
    return [
        Arm(
            f"told, {library.name}",
            [program(plan, library, "told.c"), str(signals), str(cancels), f"{seconds:.1f}"],
            seconds + REST,
            {"part": "told", "library": library.name},
        )
        for library in libraries
    ]


@dataclass
class Taken:
    """Signals that were sent in one way. `logged` and `taken`: of each thread, how many signals
    took effect in it, by the log and by the program.
    """

    library: str
    how: str
    sent: int
    elsewhere: int
    generated: int
    to_threads: int
    logged: dict[int, int]
    taken: dict[int, int]
    main: int

    @property
    def at_target(self) -> float | None:
        """Of those to a thread: the share that it took itself."""
        if self.to_threads == 0:
            return None
        return 1 - self.elsewhere / max(self.sent, 1)


GENERATED = f"""
    SELECT count(*), count(*) FILTER (NOT whole) FROM SIGNALLED
    WHERE sig = {SIGUSR1} AND sender = $1"""
DELIVERED = f"SELECT tid, count(*) FROM DELIVERED WHERE sig = {SIGUSR1} AND tgid = $1 GROUP BY tid"


def taken(library: str, run: Run) -> list[Taken]:
    cursor = log_of(run).cursor()
    found = []
    for r in reports(run, "signals"):
        logged = dict(cursor.execute(DELIVERED, [r["pid"]]).fetchall())
        by_program = {tid: n for tid, n in r["taken"] if n}
        found.append(
            Taken(
                library, r["how"], r["sent"], r["elsewhere"],
                *first(cursor, GENERATED, r["pid"]), logged, by_program, r["pid"],
            )
        )  # fmt: skip
    cursor.close()
    return found


def signals(found: Sequence[Taken]) -> Result:
    columns = [
        column("library", "C library"),
        column("sent", "to whom"),
        column("signals", "signals sent", "count"),
        column("delivered", "signals that took effect, by the log", "count"),
        column("at_target", "taken by the thread that they were sent to", "share"),
        column("by_main", "taken by the main thread", "count"),
        column("takers", "threads that took any, of 5", "count"),
    ]
    rows, points = [], []
    for t in found:
        rows.append([
            t.library, t.how, t.sent, sum(t.logged.values()), t.at_target,
            t.logged.get(t.main, 0), len(t.logged),
        ])  # fmt: skip
        workers = sorted(set(t.logged) - {t.main})
        names = {t.main: "main", **{tid: f"worker {n + 1}" for n, tid in enumerate(workers)}}
        points += [
            [names[tid], f"{t.library}, {t.how}", count] for tid, count in sorted(t.logged.items())
        ]
    return figure(
        "signals",
        ("Who takes a signal", "Which thread takes a signal to a thread, or to its process?"),
        columns,
        rows,
        Picture("matrix", {"x": "taker", "y": "signal", "size": "times"}),
        Rows(["taker", "signal", "times"], points),
        [
            column("taker", "thread that took it"),
            column("signal", "library, how it was sent"),
            column("times", "signals", "count"),
        ],
    )


@dataclass
class Cancelled:
    """Cancellations of one kind; times from the call of pthread_cancel()."""

    library: str
    how: str
    calls: int
    cancelled: int
    ended: int
    # Threads that were sent a signal, and signals.
    told: int
    signals: int
    sig: list[int] | None
    sent: int | None
    delivered: int | None
    end: int | None
    end_p99: int | None
    curve: list[tuple[int, float]]


# Numbers of threads may be used again, so each event is the first with the number after the call. A
# library may send its signal again: `sigs` has all until the thread's end.
CANCELLED = f"""
    WITH said AS (SELECT unnest($1::BIGINT[]) AS tid, unnest($2::BIGINT[]) AS called),
        cancels AS (SELECT pid, time, sig FROM SIGNALLED WHERE sig IN {CANCEL})
    SELECT called, e.time - called AS ended,
        CASE WHEN d.time < e.time THEN d.time - called END AS delivered,
        (SELECT min(time) FROM cancels WHERE pid = tid AND time BETWEEN called AND e.time) - called
            AS sent,
        (SELECT list(sig) FROM cancels WHERE pid = tid AND time BETWEEN called AND e.time) AS sigs
    FROM said
    ASOF LEFT JOIN (SELECT pid, time FROM ENDED) AS e ON tid = e.pid AND called <= e.time
    ASOF LEFT JOIN (SELECT tid AS pid, time FROM DELIVERED WHERE sig IN {CANCEL}) AS d
        ON said.tid = d.pid AND called <= d.time"""


def cancelled(library: str, run: Run) -> list[Cancelled]:
    log = log_of(run)
    start, cursor = log.start_ns, log.cursor()
    said = reports(run, "cancel")
    found = []
    for how in dict.fromkeys(r["how"] for r in said):
        mine = [r for r in said if r["how"] == how]
        cursor.execute(
            f"CREATE OR REPLACE TEMP TABLE cancelled AS {CANCELLED}",
            [[r["tid"] for r in mine], [r["called"] - start for r in mine]],
        )
        numbers = first(cursor, """
            SELECT count(ended), count(sent), coalesce(sum(len(sigs)), 0)::BIGINT,
                list_sort(list_distinct(flatten(list(sigs)))), quantile_disc(sent, 0.5),
                quantile_disc(delivered, 0.5), quantile_disc(ended, 0.5),
                quantile_disc(ended, 0.99)
            FROM cancelled""")  # fmt: skip
        curve = cursor.execute("""
            SELECT ended, (row_number() OVER (ORDER BY ended)) / count(*) OVER ()
            FROM cancelled WHERE ended > 0 ORDER BY ended""").fetchall()
        found.append(
            Cancelled(library, how, len(mine), sum(r["cancelled"] for r in mine), *numbers, curve)
        )
    cursor.close()
    return found


def cancel(found: Sequence[Cancelled]) -> Result:
    columns = [
        column("library", "C library"),
        column("cancel", "what the thread did, and how it can be cancelled"),
        column("calls", "calls of pthread_cancel()", "count"),
        column("cancelled", "threads that ended by it", "count"),
        column("signal", "signal that the library sends"),
        column("signals", "so many were sent", "count"),
        column("sent", "from the call to the signal, half of them", "ns"),
        column("delivered", "from the call until it takes effect, half of them", "ns"),
        column("ended", "from the call to the thread's end, half of them", "ns", bar=True),
        column("ended_p99", "the same, 99 of 100", "ns"),
    ]
    where = {
        "deferred": "in pause(), deferred",
        "asynchronous": "at work, asynchronous",
        "disabled": "disabled",
    }
    rows = [
        [
            c.library, where.get(c.how, c.how), c.calls, c.cancelled,
            ", ".join(map(str, c.sig or [])) or "none", c.signals, c.sent, c.delivered, c.end,
            c.end_p99,
        ]
        for c in found
    ]  # fmt: skip
    points = [
        [ns, part, f"{c.library}, {c.how}"]
        for c in found
        if c.how != "disabled"
        for ns, part in c.curve
    ]
    return figure(
        "cancel",
        ("Cancelling a thread", "How long does it take until a cancelled thread is gone?"),
        columns,
        rows,
        Picture("cdf", {"x": "ns", "y": "part", "colour": "cancelled_how", "scale": "log"}),
        Rows(["ns", "part", "cancelled_how"], points),
        [
            column("ns", "from the call of pthread_cancel() to the thread's end", "ns"),
            column("part", "threads that took no longer", "share"),
            column("cancelled_how", "library, kind"),
        ],
    )


@dataclass
class Expired:
    library: str
    period_ns: int
    signals: int
    overruns: int
    least_ns: int
    most_ns: int
    logged: int

    @property
    def expiries(self) -> int:
        return self.signals + self.overruns

    @property
    def ok(self) -> bool:
        """Of each period that has passed there is one. The last signal was taken at some moment
        between the least and the most that the program measured.
        """
        least, most = self.least_ns / self.period_ns - 1, self.most_ns / self.period_ns + 1
        # One signal may be sent that the program did not take any more.
        return (
            least <= self.expiries <= most
            and -self.missed <= self.logged - self.signals <= 1
            and self.logged > 0
        )

    @property
    def missed(self) -> float:
        """So many signals at most may be missing in the log."""
        return SIGNALS_MISSED * self.signals + 1


EXPIRED = f"""
    SELECT count(*) FROM SIGNALLED
    WHERE pid = $1 AND sig = $2 AND code = {SI_TIMER} AND result = 0"""


def expired(library: str, run: Run) -> list[Expired]:
    cursor = log_of(run).cursor()
    found = [
        Expired(
            library, r["period_ms"] * 10**6, r["signals"], r["overruns"], r["least_ns"],
            r["most_ns"], *first(cursor, EXPIRED, r["pid"], r["signal"]),
        )
        for r in reports(run, "timer")
    ]  # fmt: skip
    cursor.close()
    return found


def timers(found: Sequence[Expired]) -> Result:
    columns = [
        column("library", "C library"),
        column("period", "period of the timer", "ns"),
        column("elapsed", "time that it ran", "ns"),
        column("signals", "signals taken, by the program", "count"),
        column("logged", "signals sent, by the log", "count"),
        column("overruns", "expiries without a signal of their own (timer_getoverrun)", "count"),
        column("periods", "periods in the time"),
    ]
    rows = [
        [
            x.library, x.period_ns, x.most_ns, x.signals, x.logged, x.overruns,
            f"{x.least_ns / x.period_ns:.1f} to {x.most_ns / x.period_ns:.1f}",
        ]
        for x in found
    ]  # fmt: skip
    return figure("timers", ("Interval timers", "Is each expiry accounted for?"), columns, rows)


def sentences(found: Sequence[Taken], ended: Sequence[Cancelled]) -> list[str]:
    said = []
    for name in dict.fromkeys(c.library for c in ended):
        sigs = sorted({s for c in ended if c.library == name for s in c.sig or []})
        by_signal = {c.how: c.signals for c in ended if c.library == name}
        said.append(
            f"{name}: cancels threads with signal {', '.join(map(str, sigs)) or 'none'};"
            f" a thread that has disabled it gets"
            f" {'it as well' if by_signal.get('disabled') else 'none'}."
        )
    exact = [t for t in found if t.at_target is not None]
    if exact and all(t.at_target == 1 for t in exact):
        total = sum(t.sent for t in exact)
        said.append(f"All {total:,} signals to a thread were taken by that thread.")
    return said


def checks(
    found: Sequence[Taken], ended: Sequence[Cancelled], ran: Sequence[Expired]
) -> list[Check]:
    made = []
    for t in found:
        to_thread = t.how == "to a thread"
        text = (
            f"{t.sent:,} sent; by the log {t.generated:,} sent, {t.to_threads:,} of them to a"
            f" thread, and taken by {shares(t.logged)}; by the program {shares(t.taken)}"
        )
        ok = (
            t.generated == t.sent == sum(t.logged.values()) > 0
            and t.logged == t.taken
            and t.to_threads == (t.sent if to_thread else 0)
            and t.elsewhere == 0
        )
        made.append(Check(f"signals {t.how}, {t.library}", ok, text))
    for c in ended:
        wanted = 0 if c.how == "disabled" else c.calls
        text = (
            f"{c.calls:,} calls: {c.cancelled:,} threads say that they were cancelled,"
            f" {c.ended:,} ended by the log; {c.told:,} were sent a signal, {c.signals:,} in all"
        )
        ok = c.cancelled == wanted and c.ended == c.calls > 0
        ok &= c.how == "disabled" or c.told == c.calls
        made.append(Check(f"cancel, {c.how}, {c.library}", ok, text))
    for x in ran:
        text = (
            f"{x.signals:,} signals and {x.overruns:,} overruns in"
            f" {x.least_ns / x.period_ns:.1f} to {x.most_ns / x.period_ns:.1f} periods (± 1);"
            f" by the log {x.logged:,} signals (the kernel does not report each from an interrupt:"
            f" {x.missed:.0f} may be missing)"
        )
        made.append(Check(f"timer of {x.period_ns // 10**6} ms, {x.library}", x.ok, text))
    return made


def shares(counts: dict[int, Any]) -> str:
    return " + ".join(str(n) for _, n in sorted(counts.items())) or "none"
