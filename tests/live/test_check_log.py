# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`klogger check-log` with logs of this kernel: the rules of the bundled schemata hold, and the
violations of others are those that Python finds in the same events.
"""

import json

import pytest
from disturbed import disturbed

RULES = """
rule soon: every SCHEDOUT(pid) where (pid != 0) is followed by SCHEDIN(pid) within 200 us
rule before: every SCHEDIN(pid, cpu) is preceded by SCHEDOUT(pid, cpu) within 1 ms
rule quiet: no TRY_TO_WAKEUP(pid) between SCHEDIN(pid) and SCHEDOUT(pid)
rule steps: SCHEDIN(pid, cpu) -> (MIGRATE(pid, cpu)? -> SCHEDOUT(pid, cpu))
"""


def checked(recorder, log, *options) -> tuple[int, dict]:
    done = recorder.command("check-log", log, "--format", "json", *options)
    assert done.code in (0, 1), done.err
    return done.code, {rule["rule"]: rule for rule in json.loads(done.out)}


def events_of(recorder, log) -> list[dict]:
    done = recorder.command("cat", log, "--format", "json")
    return [json.loads(line) for line in done.out.splitlines()]


@pytest.fixture
def log(recorder, workloads):
    done, path = recorder.run(
        "-s",
        "scheduler",
        "--buffer-size",
        "16M",
        "--",
        workloads / "pingpong",
        5000,
        "processes",
        0,
    )
    assert done.code == 0, done.err
    return path


@pytest.mark.full("others of this file are in the gate")
def test_rules_of_the_scheduler_hold(recorder, log):
    code, rules = checked(recorder, log)
    wrong = sum(rule["violations"] for rule in rules.values())
    # Some kernels do not run a program at every hit: then a thread gets the CPU twice.
    if 0 < wrong <= sum(rule["checked"] for rule in rules.values()) / 1000:
        disturbed(f"{wrong} of the kernel's switches are not in the log, and nothing counts them")
    assert code == 0, rules
    assert set(rules) == {"switches", "one_cpu"}
    assert all(rule["checked"] > 5000 for rule in rules.values()), rules


@pytest.mark.full("others of this file are in the gate")
def test_rules_of_interrupts_hold(recorder, workloads):
    done, path = recorder.run(
        "-s", "interrupt", "--buffer-size", "16M", "--", workloads / "spinners", 2, 1000, 0
    )
    assert done.code == 0, done.err
    code, rules = checked(recorder, path)
    assert code == 0, rules
    assert rules["vectors"]["checked"] > 100


def not_followed(events, within) -> list[int]:
    wrong = []
    end = max(e["time"] for e in events)
    last_in: dict[int, int] = {}
    for event in reversed(events):
        pid = event.get("pid")
        if event["event"] == "SCHEDIN":
            last_in[pid] = event["time"]
        elif event["event"] == "SCHEDOUT" and pid != 0:
            due = event["time"] + within
            if last_in.get(pid, 1 << 63) > due and due < end:
                wrong.append(event["time"])
    return wrong[::-1]


def not_preceded(events, within) -> list[int]:
    wrong = []
    last_out: dict[tuple, int] = {}
    for event in events:
        key = (event.get("pid"), event["cpu"])
        if event["event"] == "SCHEDOUT":
            last_out[key] = event["time"]
        # What is earlier may have had its event before the log.
        elif event["event"] == "SCHEDIN" and last_out.get(key, 0) < event["time"] - within:
            wrong.append(event["time"])
    return wrong


def woken_while_running(events) -> list[int]:
    running: dict[int, bool] = {}
    wrong = []
    for event in events:
        pid = event.get("pid")
        if event["event"] == "SCHEDIN":
            running[pid] = True
        elif event["event"] == "SCHEDOUT":
            running[pid] = False
        elif event["event"] == "TRY_TO_WAKEUP" and running.get(pid):
            wrong.append(event["time"])
    return wrong


def test_violations_are_those_that_python_finds(recorder, log, tmp_path):
    file = tmp_path / "rules.klogger"
    file.write_text(RULES)
    _, rules = checked(recorder, log, "--rules", file, "--max", 1_000_000)
    assert all(rule["undecided"]["lost"] == 0 for rule in rules.values()), rules
    events = events_of(recorder, log)
    ours = {name: [v["events"][-1]["time"] for v in rule["first"]] for name, rule in rules.items()}
    soon = not_followed(events, 200_000)
    # The recording ends after its last event, so that more can be decided there.
    assert set(soon) <= set(ours["soon"])
    last = max(e["time"] for e in events) - 200_000
    assert [t for t in ours["soon"] if t < last] == [t for t in soon if t < last]
    assert sorted(ours["before"]) == not_preceded(events, 1_000_000)
    assert ours["quiet"] == woken_while_running(events)
    assert rules["soon"]["violations"] == len(ours["soon"])


def test_what_is_wrong_with_rules(recorder, log, tmp_path):
    file = tmp_path / "rules.klogger"

    def said(text, *options) -> str:
        file.write_text(text)
        done = recorder.command("check-log", log, "--rules", file, *options)
        assert done.code == 2 and done.out == "", done
        return done.err

    assert "rule a: this log has no event 'SCHEDINN'" in said("rule a: SCHEDINN -> SCHEDOUT")
    assert "event SCHEDIN has no field 'pit'" in said("rule a: SCHEDIN(pit) -> SCHEDOUT(pid)")
    assert "cannot be parsed" in said("rule a: SCHEDIN where (pid === 1) -> SCHEDOUT")
    assert "there is no rule 'b'" in said("rule a: SCHEDIN -> SCHEDOUT", "--rule", "b")
    assert "has no rules" in said("// none")


def test_a_violation_in_full(recorder, log, tmp_path):
    file = tmp_path / "rules.klogger"
    file.write_text('rule never "not so": no SCHEDOUT(pid) between SCHEDIN(pid) and EXIT(pid)')
    done = recorder.command("check-log", log, "--rules", file, "--max", 1)
    assert done.code == 1, done.err
    lines = done.out.splitlines()
    assert lines[0].startswith("rule never: no SCHEDOUT(pid) between")
    printed = [line.strip() for line in recorder.command("cat", log).out.splitlines()]
    events = [line.strip() for line in lines if "SCHEDIN " in line or "SCHEDOUT " in line]
    assert len(events) == 2 and set(events) <= set(printed), lines
