# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""For which waits the schema logs a stack in any case, and which waits `klogger why` does not judge
without one: these are the same, or the answers of `klogger why --depth quick` were guesses.
"""

from __future__ import annotations

import ctypes
import itertools
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from klogger.why import waits
from klogger.why.events import COMPAT, Events, gaps_of
from klogger.why.waits import SOFT, Wait

SCHEMA = Path(__file__).resolve().parents[2] / "schemata/waits/waits.klogger"
# The numbers of system calls of all machines are below; -1: in none.
CALLS = (*range(-1, 600), *range(COMPAT, COMPAT + 600))
FUTEXES = {202: "futex"}
Rule = Callable[[Wait], bool]


def part(text: str, begin: str) -> str:
    """Up to the brace that closes it."""
    found = re.search(rf"^( *){re.escape(begin)}.*?^\1}}", text, re.DOTALL | re.MULTILINE)
    assert found is not None, begin
    return found[0]


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> Rule:
    """The rule of the schema, compiled."""
    text = SCHEMA.read_text()
    folder = tmp_path_factory.mktemp("rule")
    source, library = folder / "rule.c", folder / "rule.so"
    source.write_text(f"""
        {part(text, "struct leaving {")};
        {part(text, "static int unexplained(")}
        int rule(unsigned int state, unsigned char why, unsigned long lock, short call)
        {{
            struct leaving from = {{ .lock = lock, .call = call, .why = why }};

            return unexplained(&from, state);
        }}
    """)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    rule = ctypes.CDLL(str(library)).rule
    rule.argtypes = [ctypes.c_uint, ctypes.c_ubyte, ctypes.c_ulong, ctypes.c_short]
    return lambda wait: bool(rule(wait.state, wait.why, wait.lock << 40, wait.call))


def bits(name: str) -> list[int]:
    """Of flags that the schema declares."""
    text = part(SCHEMA.read_text(), f"flags {name} {{")
    return [int(one, 16) for one in re.findall(r"0x[0-9a-f]+", text)]


def wait_of(call: int, state: int, why: int, lock: bool) -> Wait:
    """Of which nothing else is known but that a request, whose completion interrupted something,
    ended it.
    """
    return Wait(call, 0, state, why, lock, 0, 0, True, SOFT, 4, "", -1, 0, True)


def all_waits() -> list[Wait]:
    """Each call with each bit of states, and all that a state and `why` can be in one call."""
    states, whys = bits("wait_state"), bits("why_off")
    both = [one | other for one in states for other in states]
    some = itertools.product(CALLS, [0, *states], [0, *whys], [False, True])
    all_ = itertools.product((-1, 0), [0, *both], range(sum(whys) + 1), [False, True])
    return [wait_of(*one) for one in itertools.chain(some, all_)]


def test_a_stack_is_needed_where_the_schema_logs_it(schemas: Rule) -> None:
    found = {wait: waits.needs_stack(wait) for wait in all_waits()}
    assert [wait for wait, needs in found.items() if needs != schemas(wait)] == []
    assert {*found.values()} == {False, True}


def test_what_is_logged_without_a_stack_is_judged_without_it(schemas: Rule) -> None:
    """A wait that the completion of a request ended was for a disk, if nothing else can be."""
    events = Events(0, 1000, {}, gaps_of([]), calls=FUTEXES)
    told_otherwise = waits.STOPPED | waits.TRACED | waits.FROZEN
    for wait in all_waits():
        if wait.state & told_otherwise or wait.lock or wait.call in FUTEXES:
            continue
        found = waits.judge(events, wait)
        assert (found.kind == "disk") == (not schemas(wait)), wait
