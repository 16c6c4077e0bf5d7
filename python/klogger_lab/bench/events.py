# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The events of a schema, and a schema with the same events that a loop can log one by one,
whenever it wants.

All arms are at one tracepoint, in one program: a number that the loop passes says which one it is.
So they can take turns at once, and the way to each of them is the same few comparisons, also to the
one that does nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from klogger.failure import Failure, did_you_mean

# The arms that are no events of the schema, in the order of their numbers. Events have the numbers
# after them. The reference is as much of the way as there is beside the tracepoint, and never has a
# probe. With a space in each name, for no event has one.
REFERENCE, EMPTY, CLOCK, STORE, OFF = (
    "no tracepoint",
    "empty probe",
    "clock read",
    "clock, store",
    "event off",
)
FLOOR = (REFERENCE, EMPTY, CLOCK, STORE, OFF)
# An event that is defined beside the schema's own, and is off.
OFF_FIELDS = "int a  int b"
TEXT = "klogger"
NUMBERS = 128


@dataclass(frozen=True)
class Field:
    """`shape`: one, array, text or tail; `size` is the number of an array's elements, or of a
    text's bytes.

    `context`: its word, if the recorder's side fills the field.
    """

    name: str
    type: str
    shape: str = "one"
    size: int = 0
    context: str = ""

    def declaration(self) -> str:
        match self.shape:
            case "array":
                return f"{self.type} {self.name}[{self.size}]"
            case "text":
                return f"string[{self.size}] {self.name}"
            case "tail":
                return f"string {self.name}"
            case _:
                return f"{self.type} {self.name}"

    def value(self) -> str:
        return {"one": "number", "array": "bench_numbers"}.get(self.shape, "bench_text")


@dataclass(frozen=True)
class Event:
    """`bytes` of a record, up to `bytes_max` with the longest text. A hit logs so many `times`."""

    name: str
    bytes: int
    bytes_max: int
    fields: tuple[Field, ...]
    times: int = 1

    def declaration(self) -> str:
        context = " ".join(f.context for f in self.fields if f.context)
        words = [f.declaration() for f in self.fields if not f.context] + (
            [f"context {context}"] if context else []
        )
        return f"event {self.name} {{ {'  '.join(words)} }}"

    def call(self) -> str:
        one = (
            f"klogger({', '.join([self.name, *(f.value() for f in self.fields if not f.context)])})"
        )
        return "; ".join([one] * self.times)

    def of_text(self) -> bool:
        return any(f.shape in ("text", "tail") for f in self.fields)


TWO_INTS = Event("TWO_INTS", 16, 16, (Field("a", "int"), Field("b", "int")))


def of_schema(shown: dict[str, Any], names: Sequence[str] = ()) -> list[Event]:
    """The events of what `klogger show` has said of a schema, or those that are named."""
    found = {e["name"]: event_of(e) for e in shown["events"]}
    if not found:
        raise Failure(f"schema {shown['schema']} has no events")
    for name in names:
        if name not in found:
            close = did_you_mean(name, found)
            raise Failure(
                f"schema {shown['schema']} has no event '{name}'",
                help=close or f"it has {', '.join(found)}",
            )
    return [found[name] for name in dict.fromkeys(names or found)]


def event_of(shown: dict[str, Any]) -> Event:
    fields = tuple(field_of(f) for f in shown["fields"])
    return Event(shown["name"], shown["bytes"], shown["bytes_max"], fields)


def field_of(shown: dict[str, Any]) -> Field:
    shape = shown["shape"]
    kind, size = (shape, 0) if isinstance(shape, str) else next(iter(shape.items()))
    return Field(shown["name"], shown["type"], kind, size, shown.get("context") or "")


def name_of_off(events: Sequence[Event]) -> str:
    """A name that the schema has not taken."""
    taken = {e.name.upper() for e in events}
    name = "IS_OFF"
    while name in taken:
        name += "_"
    return name


HEAD = """\
// SPDX-License-Identifier: GPL-2.0-only
schema bench "What an event costs: each one, at a place that a loop can hit"

{events}
event {off} {{ {off_fields} }}
"""
PROBE = """
code {{
    static const char bench_text[] = "{text}";
    static const unsigned long long bench_numbers[{numbers}];
    static unsigned long long bench_line[2];
}}

probe tracepoint {place} {{
{first}    switch ({arm}) {{
    case 2:
        bpf_ktime_get_ns();
        break;
    case 3:
        bench_line[0] = bpf_ktime_get_ns();
        bench_line[1] = number;
        break;
{cases}    }}
}}
"""
CASE = "    case {at}:\n        {call};\n        break;\n"


@dataclass(frozen=True)
class Place:
    """A tracepoint that a loop can hit: what a schema says of it, and the C of the loop.

    `arm`: C in the probe for the arm that the loop has passed. `number` is the hit's, which `first`
    may have to define.
    """

    name: str
    parameters: str
    arm: str
    hit: str
    first: str = ""


PLACES = (
    Place(
        "task_prctl_unknown",
        "int option, unsigned long number",
        "option - 0x4b4c4700",
        """\
#include <sys/prctl.h>

/* An option that no kernel knows; for the reference, one that it knows. */
static void hit(unsigned arm, unsigned n)
{
	int option = arm ? (int)(0x4b4c4700 + arm) : PR_GET_DUMPABLE;

	for (unsigned long number = 0; number < n; number++)
		prctl(option, number, 0, 0, 0);
}
""",
    ),
    # On kernels before 6.14.
    Place(
        "itimer_state",
        "int which, const struct itimerspec64 *const value",
        "which == 1 ? value->it_interval.tv_sec : 0",
        """\
#include <sys/time.h>

/* A timer that has an interval but no time is not armed. */
static void hit(unsigned arm, unsigned n)
{
	struct itimerval timer = { { (time_t)arm, 0 }, { 0, 0 } };

	for (unsigned number = 0; number < n; number++) {
		timer.it_interval.tv_usec = (suseconds_t)number % 1000000;
		if (arm)
			setitimer(ITIMER_VIRTUAL, &timer, NULL);
		else
			getitimer(ITIMER_VIRTUAL, &timer);
	}
}
""",
        "    unsigned long number = value->it_interval.tv_nsec;\n\n",
    ),
)
PROGRAM = """\
#include "bench.klogger.h"

static const char bench_text[] = "{text}";
static const unsigned long long bench_numbers[{numbers}];
static volatile unsigned long long bench_line[2];

/* The time-stamp counter, as events read it. */
static inline unsigned long long bench_clock(void)
{{
#if defined(__x86_64__) || defined(__i386__)
	return __builtin_ia32_rdtsc();
#else
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (unsigned long long)ts.tv_sec * 1000000000u + (unsigned long long)ts.tv_nsec;
#endif
}}

/* A loop of whose body nothing may be left out. Of the first two, this is all: a program has no
   probes. */
#define ARM(at, ...)                                                  \\
	static __attribute__((noinline)) void arm_##at(unsigned n)    \\
	{{                                                             \\
		for (unsigned number = 0; number < n; number++) {{     \\
			__VA_ARGS__;                                  \\
			__asm__ volatile("" : : : "memory");          \\
		}}                                                     \\
	}}

{arms}
static void hit(unsigned arm, unsigned n)
{{
	static void (*const arms[])(unsigned) = {{ {names} }};

	(void)bench_text;
	(void)bench_numbers;
	arms[arm](n);
}}
"""


def schema(events: Sequence[Event], place: Place | None) -> str:
    """The text of the schema; without a place, for a program."""
    text = HEAD.format(
        events="\n".join(e.declaration() for e in events),
        off=name_of_off(events),
        off_fields=OFF_FIELDS,
    )
    if place is None:
        return text
    return text + PROBE.format(
        text=TEXT, numbers=NUMBERS, place=f"{place.name}({place.parameters})", first=place.first,
        arm=place.arm,
        cases="".join(
            CASE.format(at=at, call=call)
            for at, call in enumerate(calls(events), FLOOR.index(OFF))
        ),
    )  # fmt: skip


def program(events: Sequence[Event]) -> str:
    """arms.h of a program that logs the events itself."""
    bodies = [
        "",
        "",
        "bench_line[0] = bench_clock()",
        "bench_line[0] = bench_clock(); bench_line[1] = number",
    ]
    bodies += calls(events)
    arms = "".join(f"ARM({at}, {body})\n" for at, body in enumerate(bodies))
    names = ", ".join(f"arm_{at}" for at in range(len(bodies)))
    return PROGRAM.format(text=TEXT, numbers=NUMBERS, arms=arms, names=names)


def calls(events: Sequence[Event]) -> list[str]:
    """The arms that log, from the event that is off on."""
    return [f"klogger({name_of_off(events)}, number, number)", *(e.call() for e in events)]
