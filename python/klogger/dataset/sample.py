# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The first rows of a report over very many recordings: those of a few of them, before the entries
of all others are read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from klogger.dataset import Dataset, Entry, match
from klogger.dataset.fleet import Fleet, answers, of_entries
from klogger.dataset.store import Local
from klogger.executors import Executor

# Of a dataset with so many, or if their heads are kept in one file, they are read at once.
FEW = 500
# So many entries are read, and so many recordings with so many events are worked on at most: the
# rows of the first come after a few seconds, however many others there are.
ENTRIES_MAX, RECORDINGS_MAX, EVENTS_MAX = 64, 8, 2_000_000


def entries_of(dataset: Dataset, conditions: Mapping[str, str]) -> list[Entry]:
    """A few of the recordings that are asked for. The first ones by their ids, which are hashes:
    of any hosts and times. None of a store that is far away: it takes longer for one than this
    process does for several.
    """
    if not isinstance(dataset.store, Local) or dataset.is_indexed():
        return []
    logs = dataset.logs()
    if len(logs) <= FEW:
        return []
    found: list[Entry] = []
    events = 0
    for log in logs[:ENTRIES_MAX]:
        entry = dataset.entry(log)
        if entry is None or not match(entry, conditions):
            continue
        events += int(entry.said["events_logged"])
        if found and events > EVENTS_MAX:
            break
        found.append(entry)
        if len(found) == RECORDINGS_MAX:
            break
    return found


def show(
    dataset: Dataset,
    entries: Sequence[Entry],
    names: Sequence[str],
    by: Sequence[str],
    on: Executor,
    told: Callable[[Fleet], None],
) -> None:
    """Tells the answers of these recordings once: of all of them, or of those that are done after a
    few seconds. What they gave is kept, as that of others is.
    """
    known = {one.name for one in of_entries(entries)}
    some = [name for name in names if name in known]
    if names and not some:
        # Other recordings may have such analyses.
        return
    shown = False

    def tell(found: Fleet) -> None:
        nonlocal shown
        shown = True
        told(found)

    whole = answers(dataset, entries, some, by, on, first=tell)
    if not shown:
        tell(whole)
