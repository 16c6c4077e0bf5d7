# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Functions from values to texts: one for each decoding of `klogger cat`, with the texts that it
prints (crates/log/src/decode.rs).

Those of every log are written here; those of schemata, and the names of errors, are made from the
table `decoding`, which the exporter writes.
"""

from __future__ import annotations

from collections.abc import Callable

import duckdb

from klogger import devices
from klogger.made import Made
from klogger.sqltext import identifier, literal

# Of a function: how it is called, and what it is for.
DOCS = {
    "hex(x)": "a number in hexadecimal: 0xff",
    "thread(pid, time)": "a thread, with its name at that time: make[4711]",
    "code(x)": "a code address, as function and offset: schedule+0x1f",
    "symbol(x)": "the function of a code address; NULL if it is not known",
    "data(x, tgid, time)": "an address of data of a process, as variable and offset: table+0x40",
    "stack(x)": "a stack, by its number: the innermost function first",
    "device(x)": "a dev_t, as major:minor: 8:1",
    "ip(x)": "an address in network byte order: 192.0.2.1, 2001:db8::1",
    "endpoint(x)": "an address of a socket: 192.0.2.1:80, [2001:db8::1]:80, unix",
    "errno(x)": "the name of an error, of a negative number: -ENOENT",
}
# Numbers of 64 bits, a negative one as two's complement.
BITS = "({x}::HUGEINT & 18446744073709551615)"
HEX = f"printf('0x%x', {BITS}::UBIGINT)"
OCTAL = f"format('{{:#o}}', {BITS}::UBIGINT)"
# The first byte in memory is the first of the address.
IPV4 = " || '.' || ".join(f"((x::HUGEINT >> {bits}) & 255)::VARCHAR" for bits in (0, 8, 16, 24))

WORDS = r"""
CREATE MACRO klogger.klogger_word(x) AS CASE
  WHEN regexp_full_match(x, '[!-~]+') AND NOT regexp_matches(x, '["\\='']') THEN x
  ELSE '"' || replace(replace(replace(replace(x, '\', '\\'), '"', '\"'), chr(10), '\n'), chr(9),
                      '\t') || '"' END;
-- The name stands here once, as DuckDB would plan its subqueries for each place: for two threads of
-- one query that took seconds.
CREATE MACRO klogger.thread(p, t) AS list_transform([klogger.comm(p, t)], lambda "klogger c":
  CASE WHEN "klogger c" = p::VARCHAR THEN "klogger c"
  ELSE klogger.klogger_word("klogger c") || '[' || p || ']' END)[1];
CREATE MACRO klogger.stack(x) AS x::VARCHAR || coalesce('[' || (
  SELECT any_value("klogger text") FROM (SELECT id AS "klogger id", text AS "klogger text"
                                         FROM klogger.stack) AS "klogger s"
  WHERE "klogger id" = x) || ']', '');
"""
DATA = """
-- Addresses of the kernel are those with the highest bit.
CREATE MACRO klogger.data(x, p, t) AS coalesce(klogger.klogger_word((
  SELECT nullif(arg_max("klogger name", "klogger from"), '')
  FROM (SELECT tgid AS "klogger tgid", address AS "klogger address", from_ns AS "klogger from",
               coalesce(name, '') AS "klogger name" FROM klogger.variable) AS "klogger v"
  WHERE "klogger address" = x AND "klogger from" <= t
    AND "klogger tgid" = CASE WHEN x >= 9223372036854775808 THEN 0 ELSE p END)), klogger.hex(x));
"""
# An address that is a MiB or more behind the last symbol before it is not in that function.
OF_CODE = f"""CASE WHEN "klogger x" - "klogger a" < 1048576
  THEN klogger.klogger_word("klogger n") || '+' || {HEX.format(x='("klogger x" - "klogger a")')}
  ELSE {HEX.format(x='"klogger x"')} END"""
NEAREST = """(
    SELECT address AS "klogger a", name AS "klogger n" FROM klogger.symbol) AS "klogger s"
  ON "klogger x" >= "klogger a\""""
SYMBOLS = f"""
CREATE MACRO klogger.symbol(x) AS (
  SELECT CASE WHEN "klogger x" - "klogger a" < 1048576 THEN "klogger n" END
  FROM (SELECT x::UBIGINT AS "klogger x") AS "klogger q" ASOF JOIN {NEAREST});
CREATE MACRO klogger.code(x) AS CASE WHEN {{is_list}} THEN (
  SELECT '[' || coalesce(string_agg({OF_CODE}, ',' ORDER BY "klogger k"), '') || ']'
  FROM (SELECT unnest({{items}})::UBIGINT AS "klogger x",
               generate_subscripts({{items}}, 1) AS "klogger k")
    AS "klogger q" ASOF LEFT JOIN {NEAREST})
ELSE (
  SELECT {OF_CODE} FROM (SELECT {{item}}::UBIGINT AS "klogger x") AS "klogger q"
  ASOF LEFT JOIN {NEAREST} WHERE "klogger x" IS NOT NULL) END;
"""
# An argument may be a number or a list of them. Macros for each of the two would be chosen by the
# type of the argument, which DuckDB does not know of `hex(max(x))`. A cast that is not possible
# gives NULL.
IS_LIST = "typeof(x) LIKE '%]'"
ITEM = "TRY_CAST(x AS HUGEINT)"
ITEMS = "TRY_CAST(x AS HUGEINT[])"
ENDPOINT_BYTES = 20


def create(made: Made, digest: str) -> None:
    """`digest`: of what the log declares, or empty."""
    if not made.is_there("decodings of every log"):
        create_common(made.connection)
    key = ("decodings", digest)
    if digest and key in made.found:
        rows = made.found[key]
    else:
        rows = made.found[key] = made.connection.execute(DECLARED).fetchall()
    for name, *texts in rows:
        if not made.is_there(f"decoding {name}", *map(repr, texts)):
            made.connection.execute(declared(name, *texts))


def create_common(connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute(WORDS)
    connection.execute(SYMBOLS.format(is_list=IS_LIST, item=ITEM, items=ITEMS))
    # DuckDB's own function is for texts and bytes, and remains for these.
    texts = " ".join(
        f"WHEN typeof(x) = '{kind}' THEN system.main.hex(TRY_CAST(x AS {kind}))"
        for kind in ("VARCHAR", "BLOB")
    )
    connection.execute(function("hex", lambda x: HEX.format(x=x), texts))
    connection.execute(DATA)
    connection.execute(function("octal", lambda x: OCTAL.replace("{x}", x)))
    connection.execute(function("device", lambda x: devices.text_sql(BITS.format(x=x))))
    of_bytes = ip_of_bytes().replace("x[", f"({ITEMS})[").replace("len(x)", f"len({ITEMS})")
    of_bytes = of_bytes.replace("x::VARCHAR", f"{ITEMS}::VARCHAR")
    of_number = IPV4.replace("x::HUGEINT", ITEM)
    connection.execute(
        f"CREATE MACRO klogger.ip(x) AS CASE WHEN {IS_LIST} THEN {of_bytes} ELSE {of_number} END"
    )
    connection.execute(endpoint())
    connection.execute(function("errno", lambda x: f"{x}::VARCHAR"))
    # Of logs that have the numbers of system calls, and no names.
    connection.execute(function("syscall", lambda x: f"{x}::VARCHAR"))


def function(name: str, body: Callable[[str], str], cases: str = "") -> str:
    """Of a number, and of a list of them. `body`: the text of the number with this name; `cases`:
    of other arguments.
    """
    element, all_ = '"klogger e"', '"klogger l"'
    items = f"CASE WHEN {IS_LIST} THEN {ITEMS} ELSE [{ITEM}] END"
    # DuckDB reads all of this in each query that names the function: the body stands there once.
    elements = f"list_transform({items}, lambda {element}: {body(element)})"
    joined = f"'[' || array_to_string({all_}, ',') || ']'"
    found = (
        f"list_transform([{elements}], lambda {all_}:"
        f" CASE WHEN {IS_LIST} THEN {joined} ELSE {all_}[1] END)[1]"
    )
    if cases:
        found = f"CASE {cases} ELSE {found} END"
    return f"CREATE OR REPLACE MACRO klogger.{identifier(name)}(x) AS {found}"


def ip_of_bytes() -> str:
    """Of 4 bytes; or of 16, in its shortest form: `::` is for the longest run of zeros, the first
    of those that are equally long.
    """
    groups = (
        f"printf('%x', (x[{byte}] * 256 + x[{byte + 1}])::BIGINT)" for byte in range(1, 17, 2)
    )
    joined = " || ':' || ".join(groups)
    # DuckDB reads all of this when a log is opened: the text stands there once, with a name.
    text = '"klogger t"'
    runs = [f"(^|:)0(:0){{{more}}}(:|$)" for more in range(7, 0, -1)]
    cases = " ".join(
        f"WHEN regexp_matches({text}, '{run}') THEN regexp_replace({text}, '{run}', '::')"
        for run in runs
    )
    v4, mapped = (
        " || '.' || ".join(f"x[{byte}]::VARCHAR" for byte in range(first, first + 4))
        for first in (1, 13)
    )
    return (
        f"CASE WHEN len(x) = 4 THEN {v4} WHEN len(x) <> 16 THEN x::VARCHAR"
        f" WHEN x[1:12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255] THEN '::ffff:' || {mapped}"
        f" ELSE list_transform([{joined}], lambda {text}: CASE {cases} ELSE {text} END)[1] END"
    )


def endpoint() -> str:
    """Of 20 bytes: family, port, both of 16 bits, and the address."""
    bytes_ = f"({ITEMS})"
    family, port = (f"({bytes_}[{at}] + 256 * {bytes_}[{at + 1}])" for at in (1, 3))
    return (
        f"CREATE MACRO klogger.endpoint(x) AS CASE WHEN len({bytes_}) <> {ENDPOINT_BYTES}"
        f" THEN x::VARCHAR"
        f" WHEN {family} = 0 THEN '-' WHEN {family} = 1 THEN 'unix'"
        f" WHEN {family} = 2 THEN klogger.ip({bytes_}[5:8]) || ':' || {port}"
        f" WHEN {family} = 10 THEN '[' || klogger.ip({bytes_}[5:20]) || ']:' || {port}"
        f" ELSE 'family:' || {family} END"
    )


DECLARED = """
SELECT decoding, any_value(flags), list(value ORDER BY value), list(text ORDER BY value)
FROM klogger.decoding GROUP BY decoding ORDER BY decoding"""


def declared(name: str, flags: bool, values: list[int], texts: list[str]) -> str:
    """Of the table `decoding`: that of errors, and those of schemata."""
    return function(name, flags_body(values, texts) if flags else enum_body(values, texts))


def enum_body(values: list[int], texts: list[str]) -> Callable[[str], str]:
    cases = " ".join(f"WHEN {v} THEN {literal(t)}" for v, t in zip(values, texts, strict=True))
    # The table holds 64 bits as a signed number; a field may hold them as an unsigned one.
    cases += "".join(
        f" WHEN {v + 2**64} THEN {literal(t)}" for v, t in zip(values, texts, strict=True) if v < 0
    )
    return lambda x: f"CASE {x} {cases} ELSE {x}::VARCHAR END"


def flags_body(values: list[int], texts: list[str]) -> Callable[[str], str]:
    """Texts of the bits that are set, joined by `|`; bits without a text as one number in hex."""

    def body(x: str) -> str:
        bits = '"klogger b"'
        known = 0
        zero = "'0'"
        parts = []
        for signed, text in zip(values, texts, strict=True):
            value = signed % 2**64
            if value == 0:
                zero = literal(text)
                continue
            known |= value
            parts.append(
                f"CASE WHEN {bits} & {value}::UBIGINT = {value}::UBIGINT THEN {literal(text)} END"
            )
        rest = f"({bits} & {~known & (2**64 - 1)}::UBIGINT)"
        parts.append(f"CASE WHEN {rest} <> 0 THEN printf('0x%x', {rest}) END")
        joined = f"concat_ws('|', {', '.join(parts)})"
        none = f"WHEN {bits} IS NULL THEN NULL WHEN {bits} = 0 THEN {zero}"
        of_bits = f"CASE {none} ELSE {joined} END"
        return f"list_transform([{BITS.format(x=x)}::UBIGINT], lambda {bits}: {of_bits})[1]"

    return body
