# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The tools: what each takes, and what it answers. They know nothing of the protocol."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from klogger.claims import asked, claim, evidence
from klogger.claims.asked import Items, Table
from klogger.claims.stated import stated
from klogger.cli import private_as
from klogger.executor import Result
from klogger.failure import Failure, did_you_mean
from klogger.findings import first as first_findings
from klogger.findings import of as findings_of
from klogger.identity import uuid_of
from klogger.log import Log
from klogger.statements import LIMIT_NAME
from klogger.summary import summary
from klogger.units import printable
from klogger.why import answer as reasons
from klogger_lab.mcp import recording, schemata
from klogger_lab.mcp.allowed import Allowed
from klogger_lab.mcp.arguments import Argument
from klogger_lab.mcp.pages import Cursors, Page, digest, failed, listed
from klogger_lab.mcp.recording import Wish

CURSOR = "cursor"
# How many events are shown around a time if nothing is said.
AROUND = 10
Arguments = Mapping[str, Any]


@dataclass(frozen=True)
class Tool:
    name: str
    about: str
    arguments: dict[str, Argument]
    answer: Callable[[Session, Arguments], Page] | None = None
    of_log: Callable[[Log, Arguments], Page] | None = None

    def as_schema(self) -> dict[str, Any]:
        every = {**self.arguments, CURSOR: Argument("string", "continues an answer")}
        return {
            "type": "object",
            "properties": {name: one.as_schema() for name, one in every.items()},
            "required": [name for name, one in self.arguments.items() if one.required],
            "additionalProperties": False,
        }

    def check(self, given: Arguments) -> None:
        for name, value in given.items():
            if name not in self.arguments:
                names = ", ".join(self.arguments) or "none"
                raise Failure(
                    f"'{self.name}' has no argument '{printable(name)}'",
                    help=did_you_mean(name, self.arguments) or f"it has: {names}",
                )
            self.arguments[name].check(name, value)
        for name, one in self.arguments.items():
            if one.required and name not in given:
                raise Failure(f"'{self.name}' needs the argument '{name}'", help=one.doc)


@dataclass
class Session:
    """One client's. `ending`: set when the server is to end."""

    allowed: Allowed
    cursors: Cursors = field(default_factory=Cursors)
    works: schemata.Works = field(default_factory=schemata.Works)
    ending: threading.Event = field(default_factory=threading.Event)

    def call(self, name: str, arguments: Arguments) -> tuple[str, bool]:
        """The text of an answer, and whether it is an error."""
        try:
            tool = TOOLS.get(name)
            if tool is None:
                tip = did_you_mean(name, TOOLS) or f"there are: {', '.join(TOOLS)}"
                raise Failure(f"there is no tool '{printable(name)}'", help=tip)
            given = {key: value for key, value in arguments.items() if value is not None}
            cursor = given.pop(CURSOR, None)
            if cursor is not None and not isinstance(cursor, str):
                raise Failure("'cursor' is not a text")
            tool.check(given)
            return self.answered(tool, given, cursor), False
        except Failure as failure:
            return failed(failure), True

    def answered(self, tool: Tool, given: Arguments, text: str | None) -> str:
        request = digest(tool.name, given)
        # Before anything is done for one that is forged.
        cursor = None if text is None else self.cursors.read(text, request)
        if tool.answer is not None:
            return self.cursors.answer(request, tool.answer(self, given), cursor)
        assert tool.of_log is not None
        path = self.allowed.log(given["log"])
        private_as(path)
        # A page asks the log for the events that its claims rest on.
        with asked.opened(path) as log:
            page = tool.of_log(log, given)
            page.state = state_of(log)
            return self.cursors.answer(request, page, cursor)


# --- what all answers about a log have ---


def state_of(log: Log) -> str:
    """Changes when the log does."""
    counts = sorted((e.name, e.logged, e.lost) for e in log.events.values())
    return f"{uuid_of(log.preamble)} {counts} {log.meta.get('end_ns')} {log.meta.get('damage')}"


def head_of(log: Log) -> dict[str, Any]:
    return {"uuid": uuid_of(log.preamble), "ledger": evidence.state(log)}


# A question, its answer, and which of its items a claim is of.
Source = tuple[Mapping[str, Any], Items, int]


def sources_of(by: Mapping[str, Any], found: Items) -> list[Source]:
    return [(by, found, row) for row in range(len(found.values))]


class Claims:
    """Each is made when a page needs it: to find the events that it rests on takes time."""

    def __init__(self, log: Log, sources: Sequence[Source]) -> None:
        self.log, self.sources = log, sources
        self.made: dict[int, Any] = {}
        self.ledger = evidence.state(log)

    def __len__(self) -> int:
        return len(self.sources)

    def some(self, row: int, count: int) -> list[Any]:
        return [self.one(n) for n in range(row, min(row + count, len(self)))]

    def one(self, number: int) -> Any:
        if number not in self.made:
            self.made[number] = claim.of(self.log, *self.sources[number], ledger=self.ledger)
        return self.made[number]

    def page(self, head: Mapping[str, Any]) -> Page:
        return Page(len(self), lambda row, count: {**head, "claims": self.some(row, count)})


def page_of(log: Log, by: Mapping[str, Any]) -> Page:
    """The rows that fit are one claim."""
    table = asked.find(log, by)
    assert isinstance(table, Table)
    return Page(len(table.rows), lambda *rows: {"claims": [claim.of(log, by, table, *rows)]})


# --- the tools ---


def list_schemata(session: Session, given: Arguments) -> Page:
    why_not = schemata.engine()
    look = bool(given.get("check"))
    lines = [schemata.line(session.works, *one, look=look) for one in schemata.names().items()]
    head: dict[str, Any] = {"records": why_not is None, "costs": "whole in describe_schema"}
    if why_not is not None:
        head["why_not"] = stated(why_not)
    if any(line["works"] is None for line in lines):
        head["note"] = "works null: not looked at yet; check: true does, a second or two for each"
    return listed(head, "schemata", lines)


def describe_schema(session: Session, given: Arguments) -> Page:
    head, parts = schemata.described(session.works, given["schema"])
    return listed(head, "parts", parts)


def record(session: Session, given: Arguments) -> Page:
    wish = Wish(
        tuple(given["schemata"]), given.get("seconds"),
        recording.words_of(given.get("command", [])), given.get("pid"), given.get("all", False),
    )  # fmt: skip
    done = recording.record(session.allowed, wish, session.ending)
    return Page(0, lambda *_: dict(done))


def report(log: Log, given: Arguments) -> Page:
    if "analysis" in given:
        return of_analysis(log, given["analysis"])
    results = asked.report(log)
    found = Claims(log, findings_in(log, results))
    rest = [about(result) for result in results]
    shown = summary(log)
    head = {**head_of(log), "title": stated(shown.title), "summary": stated(shown.lines)}

    def body(row: int, count: int) -> dict[str, Any]:
        """Findings, then the analyses that there are."""
        end = row + count
        listed = rest[max(row - len(found), 0) : max(end - len(found), 0)]
        return {**head, "claims": found.some(row, count), "analyses": listed}

    return Page(len(found) + len(rest), body)


def findings_in(log: Log, results: list[Result]) -> list[Source]:
    """The heaviest first, of all analyses, as the head of a report has them."""
    by_name = {result.analysis.name: result for result in results}
    found: list[Source] = []
    for one in first_findings(results):
        result = by_name[one.analysis]
        by = {"kind": "analysis", "analysis": one.analysis, "part": "finding"}
        items = asked.of_result(log, result, "finding")
        assert isinstance(items, Items)
        found.append((by, items, findings_of(result).index(one)))
    return found


def about(result: Result) -> dict[str, Any]:
    one = result.analysis
    return {
        "analysis": one.name, "question": stated(one.question), "status": result.status,
        **({"reason": stated(result.reason)} if result.reason else {}),
    }  # fmt: skip


def of_analysis(log: Log, name: str) -> Page:
    """Its findings, then the rows of its table: those of a page are one claim."""
    result = asked.analysed(log, name)
    by = {"kind": "analysis", "analysis": name}
    items, table = (asked.of_result(log, result, part) for part in ("finding", "table"))
    assert isinstance(items, Items) and isinstance(table, Table)
    said = Claims(log, sources_of({**by, "part": "finding"}, items))
    head = {**about(result), "warnings": stated(result.warnings[:3])}
    units = {n: c.unit for n, c in result.analysis.columns.items() if c.unit}

    def body(row: int, count: int) -> dict[str, Any]:
        found = said.some(row, count)
        begin, end = max(row - len(said), 0), max(row + count - len(said), 0)
        if end > begin:
            found.append(claim.of(log, {**by, "part": "table"}, table, begin, end - begin))
        return {**head, **({"units": units} if end > begin else {}), "claims": found}

    return Page(len(said) + len(table.rows), body)


def why(log: Log, given: Arguments) -> Page:
    by = {"kind": "why", **{key: given[key] for key in asked.CHOICE if key in given}}
    parts = ["because", "followed", "bins"] if "part" not in given else [given["part"]]
    answer = reasons.of_log(log, asked.chosen(log, by))
    found: list[Source] = []
    for part in parts:
        own = {**by, "part": part}
        found += sources_of(own, asked.of_answer(log, answer, part))
    head = {
        "title": stated(answer.title), "elapsed_ns": answer.elapsed,
        "notes": stated(answer.notes[:3]),
    }  # fmt: skip
    return Claims(log, found).page(head)


def sql(log: Log, given: Arguments) -> Page:
    return page_of(log, {"kind": "sql", "query": given["query"]})


def events_around(log: Log, given: Arguments) -> Page:
    if ("time_ns" in given) == ("serial" in given):
        raise Failure("give either 'time_ns' or 'serial', with 'cpu'")
    if "time_ns" in given:
        time = given["time_ns"]
    else:
        time = asked.time_of(log, given["serial"], given.get("cpu"))
    before, after = given.get("before", AROUND), given.get("after", AROUND)
    by = {"kind": "events", "time_ns": time, "before": before, "after": after}
    return page_of(log, by)


def losses(log: Log, _given: Arguments) -> Page:
    found = Claims(log, sources_of({"kind": "ledger"}, asked.of_ledger(log)))
    return found.page(head_of(log))


LOG = {"log": Argument("string", "path of a log, as 'record' gives it", required=True)}
NUMBERS = "numbers of threads"
TOOLS = {
    tool.name: tool
    for tool in (
        Tool(
            "list_schemata",
            "What can be recorded: each schema with the question that it answers, whether this"
            " kernel can record it, and its cost. Begin here.",
            {"check": Argument("boolean", "look at all on this kernel, which takes half a minute")},
            answer=list_schemata,
        ),
        Tool(
            "describe_schema",
            "A schema: its events with their fields, and its analyses.",
            {"schema": Argument("string", "its name", required=True)},
            answer=describe_schema,
        ),
        Tool(
            "record",
            "Record events of a command, of a running process, or of all, into a new log, within"
            " the bounds that the user has set. A refusal says what the user would have to allow.",
            {
                "schemata": Argument("array", "names of schemata", required=True, items="string"),
                "command": Argument(
                    "array", "a command and its arguments; no shell reads them", items="string"
                ),
                "pid": Argument("integer", "a running process"),
                "all": Argument("boolean", "all processes; with a command, while it runs"),
                "seconds": Argument("number", "end after this time (5, or what is allowed)"),
            },
            answer=record,
        ),
        Tool(
            "report",
            "The answers of a log's analyses: first the findings that explain most, then which"
            " analyses there are. With 'analysis': all that this one says, with its table.",
            {**LOG, "analysis": Argument("string", "this one only")},
            of_log=report,
        ),
        Tool(
            "why",
            "Where the elapsed time of a command, or of threads, went: each nanosecond is in one"
            " bin. Needs a log with the schema 'waits'. 'because': chains of who waited for whom;"
            " 'followed': waits replaced by what those did that were waited for; 'bins': of the"
            " threads themselves; 'threads': all that there are.",
            {
                **LOG,
                "part": Argument("string", "because, followed, bins or threads (the first three)"),
                "threads": Argument("array", NUMBERS, items="integer"),
                "programs": Argument("array", "names of threads", items="string"),
                "processes": Argument("array", "numbers of processes", items="integer"),
                "from_ns": Argument("integer", "only from this time of the log on"),
                "to_ns": Argument("integer", "only up to this time"),
                "operation": Argument(
                    "string", "only of these: EVENT..EVENT, a slice, or the name of a system call"
                ),
                "slowest": Argument(
                    "integer", "only of so many operations, those that took longest"
                ),
            },
            of_log=why,
        ),
        Tool(
            "sql",
            "One query (DuckDB's SQL) over a log: a table for each event, named as the event, with"
            " time (ns since the log began), cpu, serial and its fields; also happened (all"
            " events), process, thread, ledger. It reads the log and nothing else. Rows with time,"
            " cpu and serial of one event's table are claimed event by event.",
            {**LOG, "query": Argument("string", "one SELECT", required=True)},
            of_log=sql,
        ),
        Tool(
            "events_around",
            "The events just before and after a time, of all threads, as text.",
            {
                **LOG,
                "time_ns": Argument("integer", "ns since the log began"),
                "serial": Argument("integer", "the serial number of an event, in place of a time"),
                "cpu": Argument("integer", "whose serial number that is"),
                "before": Argument("integer", f"so many events before it ({AROUND})"),
                "after": Argument("integer", f"so many from then on ({AROUND})"),
            },
            of_log=events_around,
        ),
        Tool(
            "losses",
            "What the log lacks, why, and what would help: look here before you say that something"
            " did not happen.",
            LOG,
            of_log=losses,
        ),
    )
}


def limit_queries(seconds: float) -> None:
    """For this process."""
    os.environ[LIMIT_NAME] = f"{seconds:g}"
