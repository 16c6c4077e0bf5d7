# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The stopwatch between two points of the kernel: words to schemata, and logs with empty pairs to
answers.
"""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest
import support

import klogger
from klogger import executor
from klogger.failure import Failure
from klogger_lab.cli import stopwatch as command
from klogger_lab.stopwatch import answer, live, places
from klogger_lab.stopwatch.places import OF_CPU, OF_KEY, OF_THREAD, Key, Place

ISSUE = Place("block_rq_issue", (("struct request *", "rq"),))
COMPLETE = Place(
    "block_rq_complete",
    (("struct request *", "rq"), ("blk_status_t", "error"), ("unsigned int", "n")),
)
SWITCH = Place(
    "sched_switch",
    (("bool", "preempt"), ("struct task_struct *", "prev"), ("struct task_struct *", "next")),
)


def look_up(*words: str) -> list[Place]:
    assert words[0] == "--exact"
    return [Place(words[1], ())]


@pytest.mark.parametrize(
    "words",
    [
        "tracepoint block_rq_issue",
        "tracepoint block:block_rq_issue",
        "block:block_rq_issue",
        "block_rq_issue",
    ],
)
def test_words_that_name_a_tracepoint(words: str) -> None:
    assert places.place(words, look_up).name == "block_rq_issue"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("syscall write", "probes of the kind 'syscall' are not on this engine yet"),
        ("syscall write return", "probes of the kind 'syscall' are not on this engine yet"),
        ("function do_sys_open", "probes of the kind 'function' are not on this engine yet"),
        ("usdt /bin/x:a:b", "probes of the kind 'usdt' are not on this engine yet"),
        ("tracepoint", "names no point|no tracepoint"),
        ("tracepoint a b", "'tracepoint a b' names no point of the kernel"),
        ("tracepoint a;b", "names no point of the kernel"),
        ("a:b:c", "names no point of the kernel"),
        ("", "'' names no point of the kernel"),
        (
            "tracepoint syscalls:sys_enter_openat",
            "'sys_enter_openat' is an event of ftrace, but no tracepoint",
        ),
    ],
)
def test_words_that_name_none(words: str, message: str) -> None:
    def none(*_: str) -> list[Place]:
        raise Failure("this kernel has no tracepoint 'tracepoint'")

    with pytest.raises(Failure, match=message) as failure:
        places.place(words, none)
    assert failure.value.help or "no tracepoint 'tracepoint'" in failure.value.message


def test_keys() -> None:
    assert places.key("thread", None, None, ISSUE, COMPLETE) == Key(OF_THREAD)
    assert places.key("cpu", None, None, ISSUE, COMPLETE) == Key(OF_CPU)
    assert places.key("rq", None, None, ISSUE, COMPLETE) == Key(OF_KEY, "rq", "rq")
    found = places.key("rq->tag", "next->pid", "rq->q", ISSUE, SWITCH)
    assert found == Key(OF_KEY, "rq->tag", "next->pid", "rq->q")
    assert found.text() == "rq->tag and next->pid"


@pytest.mark.parametrize(
    ("word", "stop", "only", "message"),
    [
        ("bio", None, None, "--key 'bio' names no parameter of block_rq_issue, which has rq"),
        (
            "rq",
            None,
            None,
            "--stop-key 'rq' names no parameter of sched_switch, which has preempt, prev, next",
        ),
        ("rq); bad(", "next", None, "is not an expression"),
        ("rq", "next}", None, "is not an expression"),
        ("thread", "rq", None, "--stop-key goes with a --key of the parameters"),
        ("thread", None, "next", "--if 'next' names no parameter of block_rq_issue"),
    ],
)
def test_keys_that_cannot_be(word: str, stop: str | None, only: str | None, message: str) -> None:
    with pytest.raises(Failure) as failure:
        places.key(word, stop, only, ISSUE, SWITCH)
    assert message in failure.value.message


def test_schema_has_only_the_parameters_that_it_needs() -> None:
    text = places.schema(ISSUE, SWITCH, Key(OF_KEY, "rq->tag", "prev->pid", "rq->q"))
    assert (
        "probe tracepoint block_rq_issue(struct request *rq) {\n    if (rq->q)\n       "
        " klogger(START, " in text
    )
    assert (
        "probe tracepoint sched_switch(bool preempt, struct task_struct *prev) {\n   "
        " klogger(STOP_ELSEWHERE," in text
    )
    assert "(unsigned long long)(prev->pid)" in text
    thread = places.schema(ISSUE, COMPLETE, Key(OF_THREAD))
    assert "probe tracepoint block_rq_complete(struct request *rq) {\n    klogger(STOP, " in thread


def test_one_point_is_first_the_end_and_then_the_begin() -> None:
    text = places.schema(SWITCH, SWITCH, Key(OF_THREAD))
    assert text.count("probe tracepoint") == 1
    assert text.index("klogger(STOP,") < text.index("klogger(START,")


EMPTY = (
    'CREATE TABLE {} (time BIGINT, cpu SMALLINT, serial BIGINT, tid INTEGER, site UINTEGER, "key"'
    " UBIGINT)"
)


def log_of(
    path: Path, rows: list[tuple[str, int, int]], empty: list[tuple[int, int]], mark: int | None
) -> klogger.log.Log:
    """A log of (event, time, thread), with empty pairs of (START, STOP) by thread 99, and perhaps
    their end.
    """
    con = duckdb.connect()
    support.create_tables(con, support.events_of("stopwatch"))
    for serial, (event, time, tid) in enumerate(rows):
        con.execute(
            f"INSERT INTO {event} BY NAME SELECT {time} AS time, 0 AS cpu, {serial} AS serial,"
            f" {tid} AS tid, 1 AS site, 39 AS key"
        )
    if mark is not None:
        con.execute(
            f"INSERT INTO MARK BY NAME SELECT {mark} AS time, 77 AS number, 'klogger stopwatch' AS"
            " text"
        )
        con.execute(f"INSERT INTO PROCESS_EXEC BY NAME SELECT {mark + 1000} AS time, 77 AS pid")
    out = support.write_log(
        con, path / "x.klog-parquet", schema="stopwatch", processes=[], end=10**9
    )
    for at, name in enumerate(("EMPTY_START", "EMPTY_STOP")):
        con.execute(EMPTY.format(name))
        con.execute(
            f"INSERT INTO {name} SELECT unnest(?), 0, 0, 99, 0, 0", [[pair[at] for pair in empty]]
        )
        con.execute(f"COPY {name} TO '{out}/{name}.parquet'")
        fields = json.dumps([{"name": n} for n in ("tid", "site", "key")])
        con.execute(
            "INSERT INTO klogger_event VALUES (?, ?, ?, '', NULL, ?, 0, ?)",
            [name, name.lower(), 90 + at, len(empty), fields],
        )
    con.execute(f"COPY klogger_event TO '{out}/event.parquet'")
    return klogger.open(out, locked=True)


def answered(log: klogger.log.Log) -> answer.Answer:
    results = list(executor.run_all(log, executor.choose(log, answer.ANALYSES)))
    assert [r.reason for r in results if r.status == "failed"] == []
    return answer.of(results, "A", "B", "thread")


def test_own_cost_is_subtracted(tmp_path: Path) -> None:
    """Empty pairs of 40, 50 and 60 ns: 50, deviation 10. Calls of 1050, 2050 and 45 ns: 1000, 2000
    and -5.
    """
    rows = [
        ("START", 5000, 7),
        ("STOP", 6050, 7),
        ("START", 7000, 7),
        ("STOP", 9050, 7),
        ("START", 9100, 8),
    ]
    rows.append(("STOP", 9145, 8))
    found = answered(log_of(tmp_path, rows, [(100, 140), (200, 250), (300, 360)], None))
    assert found.own == answer.OwnCost(3, 50, 10)
    assert (found.pairs, found.min, found.p50, found.max, found.negative) == (3, -5, 1000, 2000, 1)
    assert found.mean == pytest.approx(2995 / 3)
    assert (
        found.with_own == pytest.approx((found.trimmed_sd**2 + 100) ** 0.5)
        if found.trimmed_sd
        else False
    )
    assert found.warnings == ()
    text = "\n".join(command.kernel_text(found))
    assert (
        "Subtracted: 50 ns, what the stopwatch itself takes (standard deviation 10 ns,\n  3 empty"
        " pairs)" in text
    )
    assert "1 pairs took less than what is subtracted" in text
    assert "99.9 %" not in text
    assert all(len(line) <= 100 for line in text.splitlines())


def test_a_longest_thousandth_of_the_empty_pairs_is_left_out(tmp_path: Path) -> None:
    """999 empty pairs of 50 ns, and one of 50 µs."""
    empty = [(1000 * n, 1000 * n + 50) for n in range(999)]
    rows = [("START", 5_000_000, 7), ("STOP", 5_001_050, 7)]
    found = answered(log_of(tmp_path, rows, [*empty, (2_000_000, 2_050_000)], None))
    assert found.own == answer.OwnCost(1000, 50, 0)
    assert found.mean == 1000


def test_what_a_held_command_does_before_its_exec_does_not_count(tmp_path: Path) -> None:
    """The mark is at 1000, and the exec at 2000."""
    rows = [
        ("START", 500, 77),
        ("STOP", 600, 77),
        ("STOP", 1500, 77),
        ("START", 1800, 77),
        ("STOP", 2100, 77),
    ]
    rows += [("START", 3000, 77), ("STOP", 3350, 77)]
    found = answered(log_of(tmp_path, rows, [(100, 150), (200, 250)], 1000))
    assert (found.starts, found.stops, found.pairs, found.mean, found.no_start) == (1, 2, 1, 300, 1)


def test_no_pair_at_all(tmp_path: Path) -> None:
    found = answered(log_of(tmp_path, [("START", 5000, 7)], [], None))
    assert (found.pairs, found.mean, found.own) == (0, None, None)
    assert "none of 1 A and 0 B belong together" in command.kernel_text(found)[1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a"], "two points are needed, BEGIN and END; there are 1"),
        (["a", "b", "c", "d"], "two points are needed, BEGIN and END; there are 4"),
        (["a", "b"], "nothing to record"),
        (["a", "b", "-a", "--", "true"], "a command and -a or -p exclude each other"),
        (["syscall read", "a", "-a"], "probes of the kind 'syscall' are not on this engine yet"),
    ],
)
def test_what_cannot_be_done_is_said(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(words) == 2
    said = capsys.readouterr().err
    assert said.startswith("klogger: ") and message in said and "\n  help: " in said


def test_a_command_that_does_not_exist_is_not_recorded(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="cannot run 'no-such-program': there is no such program"):
        live.record(
            live.Recording([], tmp_path / "x.klog", (), ["no-such-program"]), tmp_path, print
        )
