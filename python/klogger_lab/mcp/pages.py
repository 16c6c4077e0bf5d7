# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Answers of at most 4 kB, and the cursors that continue them.

A cursor says of which request it is, and of which state of the log, and is signed with a key of
this process: one that was changed, or is of another request, log or server, is refused.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from klogger.claims.stated import as_json, cut, size
from klogger.failure import Failure
from klogger.units import printable

LIMIT = 4096
# In bytes of JSON: a message and a remedy of an error.
MESSAGE_MAX, HELP_MAX = 1500, 1500
BYTES = 8
AGAIN = "ask again, without a cursor"


@dataclass
class Page:
    """`body`: the answer with the items from a number on, so many of them. `state`: what the items
    are of; when it changes, cursors are stale.
    """

    count: int
    body: Callable[[int, int], dict[str, Any]]
    state: str = ""


def listed(head: Mapping[str, Any], name: str, items: list[Any], state: str = "") -> Page:
    def body(row: int, count: int) -> dict[str, Any]:
        return {**head, name: items[row : row + count]}

    return Page(len(items), body, state)


def digest(*parts: Any) -> bytes:
    return hashlib.sha256(as_json(parts).encode()).digest()[:BYTES]


@dataclass
class Cursors:
    key: bytes = field(default_factory=lambda: secrets.token_bytes(32))

    def make(self, request: bytes, state: bytes, row: int) -> str:
        content = request + state + row.to_bytes(BYTES)
        return base64.urlsafe_b64encode(content + self.signed(content)).decode()

    def signed(self, content: bytes) -> bytes:
        return hmac.digest(self.key, content, "sha256")[:BYTES]

    def read(self, cursor: str, request: bytes) -> tuple[bytes, int]:
        """Of which state it is, and where it continues. Raises Failure."""
        try:
            raw = base64.b64decode(cursor.encode("ascii"), altchars=b"-_", validate=True)
        except ValueError:
            raw = b""
        content, signature = raw[: 3 * BYTES], raw[3 * BYTES :]
        if not hmac.compare_digest(signature, self.signed(content)):
            raise Failure(
                "the cursor is not of this server: it is of an earlier one, or changed", help=AGAIN
            )
        if content[:BYTES] != request:
            raise Failure("the cursor is of another request", help=f"repeat it whole, or {AGAIN}")
        return content[BYTES : 2 * BYTES], int.from_bytes(content[2 * BYTES :])

    def answer(self, request: bytes, page: Page, cursor: tuple[bytes, int] | None) -> str:
        """As many items as fit, and a cursor for the rest. `cursor`: as it was read."""
        state, row = digest(page.state), 0
        if cursor is not None:
            of_state, row = cursor
            if of_state != state:
                raise Failure("the cursor is stale: the log has changed", help=AGAIN)

        def text(count: int) -> str:
            body = page.body(row, count)
            if row + count < page.count:
                body["cursor"] = self.make(request, state, row + count)
            return as_json(body)

        left = max(page.count - row, 0)
        count = most(lambda n: len(text(n)) <= LIMIT, left)
        if count == 0 and left:
            raise Failure("one row of the answer has more than 4 kB", help="ask for fewer columns")
        found = text(count)
        if len(found) > LIMIT:
            raise Failure("the head of the answer has more than 4 kB")
        return found


def most(fits: Callable[[int], bool], count: int) -> int:
    """The largest number up to `count` that fits: first by doubling, for few do."""
    low, step = 0, 1
    while low + step <= count and fits(low + step):
        low, step = low + step, step * 2
    high = min(low + step, count + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def harmless(text: str) -> str:
    return "\n".join(map(printable, text.split("\n")))


def failed(failure: Failure) -> str:
    found = {"error": cut(harmless(failure.message), MESSAGE_MAX)}
    if failure.help:
        found["help"] = cut(harmless(failure.help), HELP_MAX)
    assert size(found) <= LIMIT
    return as_json(found)
