# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What makes a log another recording than others: its preamble, with the host and the time at which
it began, which stays the same if the log is cut or grows.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any

NAMESPACE = uuid.UUID("6b6c6f67-6765-5d7a-8000-000000000000")


def text_of(preamble: Mapping[str, Any]) -> str:
    return json.dumps(preamble, sort_keys=True)


def uuid_of(preamble: Mapping[str, Any]) -> str:
    return str(uuid.uuid5(NAMESPACE, text_of(preamble)))
