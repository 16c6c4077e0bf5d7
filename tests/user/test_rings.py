# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Many threads, small rings, signal handlers, forks: each call is in a ring, whole, or has been
counted as lost.
"""

from collections import Counter

import pytest
from shm_oracle import Shared
from tiers import scaled

TOP = (1 << 64) - 1


def check_whole(values: dict) -> None:
    assert values["proof"] == ~(values["thread"] << 32 | values["n"]) & TOP, values


def check_streams(drainer, event: str) -> Counter:
    """Each event is whole, and those of a thread are in order; how many there are, by thread."""
    found = Counter()
    for stream in drainer.streams(event).values():
        last = {}
        for values in stream:
            check_whole(values)
            assert values["n"] > last.get(values["thread"], -1)
            last[values["thread"]] = values["n"]
            found[values["thread"]] += 1
    return found


def check_gaps(drainer) -> int:
    """Where numbers are missing between two events, LOST records stand that count them; how many
    they count.
    """
    counted = 0
    for records in drainer.records.values():
        expected, missing = None, 0
        for record in records:
            if record.name == "LOST":
                missing += record.values["count"]
                assert record.values["since"] & ((1 << 48) - 1) <= record.time
            elif record.name == "COUNT":
                if expected is not None:
                    assert record.values["n"] == expected + missing
                expected, missing, counted = record.values["n"] + 1, 0, counted + missing
    return counted


def test_threads(build, room):
    """16 threads, a drainer that is quick enough: all is there."""
    calls = scaled(5_000, 100_000)
    done, drainer = room.record(build("flood.c"), 16, calls, 200)
    assert done.code == 0
    assert check_streams(drainer, "COUNT") == {thread: calls for thread in range(16)}
    tids = {thread["tid"]: thread["thread"] for thread in done.report["threads"]}
    for key, stream in drainer.streams("COUNT").items():
        assert {values["thread"] for values in stream} == {tids[drainer.tids[key]]}


@pytest.mark.parametrize("clock", [0, 1])
def test_small_rings(build, room, clock):
    """Rings that are too small: what is logged and what is counted as lost are all calls, by thread
    and event.

    Between the threads' rests a ring fills three times over. In the rests it is emptied: so events
    come after a loss.
    """
    calls = scaled(100_000, 1_000_000)
    done, drainer = room.record(build("flood.c"), 4, calls, 2000, ring=1 << 14, clock=clock)
    assert done.code == 0
    logged = check_streams(drainer, "COUNT")
    (shared,) = drainer.files.values()
    threads = {thread["tid"]: thread["thread"] for thread in done.report["threads"]}
    slots = [(slot, slot.main.lost().get("COUNT", 0)) for slot in shared.used_slots()]
    lost = sum(count for _, count in slots)
    assert lost > 0, "nothing was lost, so nothing was tested"
    assert len(slots) == 4
    for slot, count in slots:
        assert logged[threads[slot.tid]] + count == calls
    assert 0 < check_gaps(drainer) <= lost


def test_more_threads_than_slots(build, room):
    """Those that get none lose their events, and the file counts them."""
    done, drainer = room.record(build("flood.c"), 8, 2000, 100, slots=3)
    (shared,) = drainer.files.values()
    assert done.code == 0
    assert len(shared.used_slots()) == 3
    assert sum(check_streams(drainer, "COUNT").values()) + drainer.counted("COUNT") == 8 * 2000
    assert shared.lost()["COUNT"] > 0
    assert shared.word32(Shared.FAILED) != 0


def test_short_threads_share_slots(build, room):
    """A slot is taken again once it is emptied: four threads at a time do not need thousands."""
    n = scaled(2_000, 10_000)
    done, drainer = room.record(build("lives.c"), "threads", n)
    assert done.code == 7
    (shared,) = drainer.files.values()
    numbers = sorted(values["n"] for values in drainer.all("COUNT"))
    assert drainer.counted("COUNT") == 0
    assert numbers == [*range(n + 1), 1_000_000]
    assert len(shared.used_slots()) < n / 2


@pytest.mark.parametrize("clock", [0, 1])
@pytest.mark.parametrize("us", [50, 500])
def test_signal_handlers(build, room, us, clock):
    """Handlers that log in the middle of an event, and in the middle of each other: nothing is
    torn.
    """
    calls = scaled(300_000, 10_000_000)
    done, drainer = room.record(build("signals.c"), calls, us, clock=clock, timeout=3000)
    assert done.code == 0
    logged = check_streams_of_handlers(drainer)
    assert logged["COUNT"] + drainer.counted("COUNT") == calls
    assert logged["NESTED"] + drainer.counted("NESTED") == 3 * done.report["handled"]
    nested = sum(record.nested for records in drainer.records.values() for record in records)
    assert nested > 0, "no handler interrupted an event, so nothing was tested"


def check_streams_of_handlers(drainer) -> Counter:
    logged = Counter()
    for records in drainer.records.values():
        for record in records:
            logged[record.name] += 1
            if record.name != "LOST":
                check_whole(record.values)
        main = [record.time for record in records if not record.nested]
        assert main == sorted(main), "a main ring is in the order of time"
    assert len(drainer.streams("COUNT")) == 1
    numbers = [values["n"] for values in drainer.all("COUNT")]
    assert numbers == sorted(set(numbers))
    return logged


def test_forks_in_the_middle_of_an_event(build, room):
    """A handler forks wherever the program is: no event of the parent is torn or missing, children
    log their own.
    """
    n = scaled(50, 1000)
    done, drainer = room.record(build("lives.c"), "handler", n, timeout=600)
    assert (done.code, done.err) == (7, "")
    assert len(drainer.files) == n + 1
    for values in drainer.all("COUNT"):
        check_whole(values)
    (parent,) = [
        stream for stream in drainer.streams("COUNT").values() if stream[-1]["n"] == 1_000_000
    ]
    numbers = [values["n"] for values in parent]
    assert drainer.counted("COUNT") == 0
    assert numbers == [*range(len(numbers) - 1), 1_000_000]
    children = [values for values in drainer.all("COUNT") if values["thread"] == 1]
    assert Counter(values["n"] for values in children) == {i: n for i in range(10)}


def test_flight_recorder(build, room):
    """The newest events of a program that crashed, without a recorder."""
    calls = 50_000
    done = room.run(build("flood.c"), 3, calls, record=False, KLOGGER_FLIGHT=1 << 17)
    assert (done.code, done.err) == (0, "")
    (name,) = room.names()
    shared = Shared(room.path / name)
    assert shared.on() >= {"COUNT", "NESTED", "WORD", "MARK"}
    for slot in shared.used_slots():
        numbers = []
        for record in slot.main.newest():
            check_whole(record.values)
            numbers.append(record.values["n"])
        # A 64th of the ring is always being emptied.
        assert len(numbers) >= (1 << 17) // 24 * 60 // 64
        assert numbers == list(range(calls - len(numbers), calls))
    shared.close()


def test_flight_recorder_after_a_crash(build, room):
    done = room.run(build("lives.c"), "abort", record=False, KLOGGER_FLIGHT=1)
    assert (done.code, done.err) == (-6, "")
    (name,) = room.names()
    shared = Shared(room.path / name)
    (slot,) = shared.used_slots()
    assert [record.values["n"] for record in slot.main.newest()] == [0]
    shared.close()
    # The file stays: no other program removes it.
    room.run(build("lives.c"), "nothing", record=False)
    assert room.names() == [name]
