# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Names and texts as SQL has them."""


def identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
