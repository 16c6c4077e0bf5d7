# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Two points of the kernel, named in words, as a schema that logs START at the one and STOP at the
other.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from klogger import program
from klogger.failure import Failure

# Numbers of actions, as schemata/stopwatch/stopwatch.klogger has them: what makes a START and a
# STOP belong together.
OF_THREAD, OF_KEY, OF_CPU = 0, 199, 299
# The kinds of probes that schemata have; of these, tracepoints can be attached.
OTHER_KINDS = ("function", "return", "syscall", "user", "usdt", "timer")
WORD = re.compile(r"\w+")

SCHEMA = """\
// SPDX-License-Identifier: GPL-2.0-only
schema stopwatch "From {begin} to {end}"

enum action {{ {site} "{begin} to {end}" }}

event START scope tid {{ int tid as thread  uint site as action  ulonglong key as hex }}
event STOP scope tid {{ int tid as thread  uint site as action  ulonglong key as hex }}
event STOP_ELSEWHERE scope all {{ int tid as thread  uint site as action  ulonglong key as hex }}
"""
PROBE = """
probe tracepoint {place} {{
{body}}}
"""
CALL = "    klogger({event}, klogger_current_tid(), {site}, (unsigned long long)({key}));\n"
# The analyses need all three events in a log, also the one that nothing logs.
NEVER = "    if (0)\n        klogger({event}, 0, 0, 0);\n"
ONLY = "    if ({condition})\n    "

# A pair with nothing in between: two programs at one tracepoint, which run one after the other. The
# tracepoint is hit by setitimer(ITIMER_VIRTUAL), which few programs call.
EMPTY = """\
// SPDX-License-Identifier: GPL-2.0-only
schema empty_{event} "What the stopwatch itself takes: a pair with nothing in between"

event EMPTY_{EVENT} scope all {{ int tid as thread  uint site  ulonglong key as hex }}

probe tracepoint itimer_state(int which) {{
    if (which == 1 && klogger_current_tid() == {tid})
        klogger(EMPTY_{EVENT}, klogger_current_tid(), 0, 0ull);
}}
"""


@dataclass(frozen=True)
class Place:
    """A tracepoint. `parameters`: (type, name)."""

    name: str
    parameters: tuple[tuple[str, str], ...]

    def names(self) -> list[str]:
        return [name for _, name in self.parameters]

    def declaration(self, expression: str) -> str:
        """The tracepoint with its parameters up to the last one that `expression` uses."""
        used = set(WORD.findall(expression))
        last = max((i for i, name in enumerate(self.names()) if name in used), default=0)
        declared = [
            f"{ty}{name}" if ty.endswith("*") else f"{ty} {name}"
            for ty, name in self.parameters[: last + 1]
        ]
        return f"{self.name}({', '.join(declared)})"


@dataclass(frozen=True)
class Key:
    """Which STOP belongs to a START: `site` says whether by thread, by key or by CPU; the others
    are C.

    `only`: the condition of a START, or nothing.
    """

    site: int
    begin: str = "0"
    end: str = "0"
    only: str = ""

    def text(self) -> str:
        if self.site == OF_KEY:
            return self.begin if self.begin == self.end else f"{self.begin} and {self.end}"
        return "thread" if self.site == OF_THREAD else "CPU"


def tracepoints(*words: str) -> list[Place]:
    """What `klogger tracepoints` says."""
    return [
        Place(t["name"], tuple((p["type"], p["name"]) for p in t["parameters"]))
        for t in program.answer("tracepoints", *words)
    ]


def place(words: str, look_up: Callable[..., list[Place]] = tracepoints) -> Place:
    """The point that `tracepoint NAME` means; NAME may have its group before it, and the kind may
    be left out.
    """
    kind, _, rest = words.strip().partition(" ")
    if kind in OTHER_KINDS and rest:
        raise Failure(
            f"'{words}': probes of the kind '{kind}' are not on this engine yet",
            help="name a tracepoint; 'klogger tracepoints' lists them"
            + (
                "; 'klogger record -s stopwatch' times all system calls"
                if kind == "syscall"
                else ""
            ),
        )
    named = rest.strip() if kind == "tracepoint" else words.strip()
    group, _, name = named.rpartition(":")
    if not WORD.fullmatch(name) or (group and not WORD.fullmatch(group)):
        raise Failure(
            f"'{words}' names no point of the kernel",
            help="write 'tracepoint NAME' or 'tracepoint GROUP:NAME'; 'klogger "
            "tracepoints' lists them",
        )
    if re.match(r"sys_(enter|exit)_", name):
        raise Failure(
            f"'{name}' is an event of ftrace, but no tracepoint: all system calls share two",
            help="'klogger record -s stopwatch' times each kind of them; or use "
            "sys_enter and sys_exit",
        )
    return look_up("--exact", name)[0]


def key(word: str, stop: str | None, only: str | None, begin: Place, end: Place) -> Key:
    """`--key` and `--stop-key`: thread, cpu, or C over the parameters; `--if` is C as well."""
    if only is not None:
        check("--if", only, begin)
    if word in ("thread", "cpu"):
        if stop is not None:
            raise Failure(f"--stop-key goes with a --key of the parameters, not with --key {word}")
        return Key(OF_THREAD if word == "thread" else OF_CPU, only=only or "")
    found = Key(OF_KEY, word, stop or word, only or "")
    check("--key", found.begin, begin)
    check("--stop-key", found.end, end)
    return found


def check(option: str, expression: str, where: Place) -> None:
    """That it is one expression, and uses what the place has. The rest is for the
    compiler to say.
    """
    if re.search(r"[;{}\"\\\n#]", expression) or not expression.strip():
        raise Failure(
            f"{option} '{expression}' is not an expression",
            help="for example: rq, or 'rq->__sector'",
        )
    if set(WORD.findall(expression)) & set(where.names()):
        return
    has = ", ".join(where.names()) or "nothing"
    raise Failure(
        f"{option} '{expression}' names no parameter of {where.name}, which has {has}",
        help="--key and --if are of the first point; where the second has other parameters, "
        "it needs a --stop-key",
    )


def schema(begin: Place, end: Place, by: Key) -> str:
    """The text of the schema. A point that is both the end of one and the begin of the next logs
    STOP first.
    """
    events = ["STOP_ELSEWHERE", "STOP"] if by.site == OF_KEY else ["STOP", "STOP_ELSEWHERE"]
    stop = CALL.format(event=events[0], site=by.site, key=by.end) + NEVER.format(event=events[1])
    start = CALL.format(event="START", site=by.site, key=by.begin)
    if by.only:
        start = ONLY.format(condition=by.only) + start
    text = SCHEMA.format(begin=begin.name, end=end.name, site=by.site)
    if begin.name == end.name:
        return text + PROBE.format(
            place=begin.declaration(f"{by.begin} {by.end} {by.only}"), body=stop + start
        )
    text += PROBE.format(place=begin.declaration(f"{by.begin} {by.only}"), body=start)
    return text + PROBE.format(place=end.declaration(by.end), body=stop)


def empty(tid: int) -> dict[str, str]:
    """The two schemata of empty pairs, by their names, in the order in which they must be
    attached.
    """
    return {
        f"empty_{e}": EMPTY.format(event=e, EVENT=e.upper(), tid=tid) for e in ("start", "stop")
    }
