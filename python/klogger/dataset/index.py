# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The heads of all entries of a dataset in one file, `cache/index.json`: to read ten thousand
entries, with all their files and columns, takes longer than the second report of them.

An entry is known by its file's inode, time and size: one that was written anew is read anew. The
file may be missing, damaged, or out of date; then it is only slower.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from klogger import opening
from klogger.dataset.store import Local
from klogger.folder import RECORDINGS, columns_of

NAME = "cache/index.json"
# Fewer that are not in it are read each time.
NEW_MAX = 50
# Of an entry, what is read only if it is asked for.
FILES = ("events", "tables", opening.NAME)

# Of each event, by schema and name: its columns.
Forms = Mapping[tuple[str, str], tuple[tuple[str, str], ...]]
# Inode, time, size.
State = tuple[int, int, int]


class Head(dict[str, Any]):
    """Of an entry; it reads the rest when that is asked for. `forms` may be shared by many."""

    def __init__(self, head: Mapping[str, Any], forms: Forms, load: Callable[[], Any]) -> None:
        super().__init__(head)
        self.forms = forms
        self.load = load

    def __missing__(self, name: str) -> Any:
        if name not in FILES:
            raise KeyError(name)
        whole = self.load()
        self.update({kind: whole[kind] for kind in FILES if kind in whole})
        return self[name]


class Shared:
    """Makes heads of entries. Those with the same events share what is known of them."""

    def __init__(self, load: Callable[[str], Any]) -> None:
        self.load = load
        self.forms: dict[tuple[Any, ...], Forms] = {}

    def head(self, log: str, said: Mapping[str, Any]) -> Head:
        own = forms_of(said)
        forms = self.forms.setdefault(tuple(own.items()), own)
        head = {name: value for name, value in said.items() if name not in FILES}
        return Head(head, forms, partial(self.load, log))


def forms_of(said: Mapping[str, Any]) -> Forms:
    if isinstance(said, Head):
        return said.forms
    return {(part.schema, name): part.form for name, part in said["events"].items()}


def states(store: Local) -> dict[str, State]:
    """Of all entries, by id."""
    found: dict[str, State] = {}
    with contextlib.suppress(FileNotFoundError), os.scandir(store.folder / RECORDINGS) as files:
        for file in files:
            if file.name.endswith(".json"):
                with contextlib.suppress(FileNotFoundError):
                    state = file.stat()
                    own = (state.st_ino, state.st_mtime_ns, state.st_size)
                    found[file.name.removesuffix(".json")] = own
    return found


def read(
    store: Local, now: Mapping[str, State], load: Callable[[str], Any]
) -> dict[str, Mapping[str, Any]]:
    """The heads that are as they were, by id. `load`: reads an entry."""
    try:
        said = json.loads(store.read(NAME))
        forms = [
            {(str(s), str(e)): listed(columns) for s, e, columns in form} for form in said["forms"]
        ]
        return {
            log: Head(head, forms[form], partial(load, log))
            for log, (state, head, form) in said["entries"].items()
            if now.get(log) == tuple(state)
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError):
        return {}


def listed(columns: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Of types that are some."""
    return tuple((c.name, c.type) for c in columns_of(tuple((str(n), str(t)) for n, t in columns)))


def write(store: Local, now: Mapping[str, State], entries: Mapping[str, Mapping[str, Any]]) -> None:
    """Where nothing can be written, there is none."""
    numbers: dict[tuple[Any, ...], int] = {}
    # Those that many share are looked through once. (While one is here, no other has its id.)
    known: dict[int, tuple[Forms, int]] = {}
    of_entries = {}
    for log, said in entries.items():
        own = forms_of(said)
        if id(own) not in known:
            form = tuple((*event, columns) for event, columns in own.items())
            known[id(own)] = (own, numbers.setdefault(form, len(numbers)))
        head = {name: value for name, value in said.items() if name not in FILES}
        of_entries[log] = [now[log], head, known[id(own)][1]]
    with contextlib.suppress(OSError):
        text = json.dumps({"forms": list(numbers), "entries": of_entries})
        store.write(NAME, text.encode())
