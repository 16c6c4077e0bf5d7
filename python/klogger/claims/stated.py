# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Values as claims have them: plain, harmless, and of bounded size.

The same value always becomes the same JSON. So a claim is checked by making it again, and what is
too long for it, and stands there with its checksum, is checked as well.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from klogger.units import plain, printable

# In bytes of JSON: of a text, of a row, and of what of them is shown if they are longer.
TEXT_MAX, ROW_MAX, SHOWN = 400, 1200, 200


def as_json(value: Any) -> str:
    """One line of ASCII: no character of it acts on a terminal."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def size(value: Any) -> int:
    return len(as_json(value))


def stated(value: Any) -> Any:
    return shortened(plain(value, digits=True))


def shortened(value: Any) -> Any:
    if isinstance(value, str):
        text = printable(value)
        return text if size(text) <= TEXT_MAX else digest(text, value)
    if isinstance(value, Mapping):
        return {printable(str(key)): shortened(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [shortened(one) for one in value]
    return value


def row(values: Iterable[Any]) -> Any:
    """A row of a table; one that is too long as its beginning and its checksum."""
    found = [stated(value) for value in values]
    text = as_json(found)
    return found if len(text) <= ROW_MAX else digest(text, text)


def digest(shown: str, whole: str) -> dict[str, Any]:
    content = whole.encode(errors="surrogatepass")
    checksum = hashlib.sha256(content).hexdigest()
    return {"begins": cut(shown, SHOWN), "bytes": len(content), "sha256": checksum}


def cut(text: str, most: int) -> str:
    """The beginning of a text that has so many bytes in JSON."""
    found = text[:most]
    while size(found) > most:
        found = found[: len(found) * 3 // 4]
    return found
