# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The Model Context Protocol over the standard input and output, as the official SDK speaks it."""

from __future__ import annotations

import contextlib

import anyio
import mcp_types as types
from anyio import to_thread
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage

from klogger_lab.mcp.tools import TOOLS, Session

NAME = "klogger"
# What only looks, and what makes a log.
WRITES = {"record"}


def server(session: Session, version: str, instructions: str) -> Server:
    # One call at a time: logs are opened, and tables made, by one.
    alone = anyio.CapacityLimiter(1)

    async def list_tools(
        _context: ServerRequestContext, _params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(
            tools=[
                types.Tool(
                    name=tool.name,
                    description=tool.about,
                    input_schema=tool.as_schema(),
                    annotations=types.ToolAnnotations(
                        read_only_hint=tool.name not in WRITES,
                        destructive_hint=False,
                        open_world_hint=False,
                    ),
                )
                for tool in TOOLS.values()
            ]
        )

    async def call_tool(
        _context: ServerRequestContext, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        text, failed = await to_thread.run_sync(
            session.call, params.name, params.arguments or {}, limiter=alone
        )
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=text)], is_error=failed
        )

    return Server(
        NAME,
        version=version,
        instructions=instructions,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def serve(session: Session, version: str, instructions: str) -> None:
    """Until the client closes the standard input: a recording that goes on ends then, for the call
    of it is waited for.
    """
    made = server(session, version, instructions)

    async def run() -> None:
        async with stdio_server() as (read, write), anyio.create_task_group() as tasks:
            passed, received = anyio.create_memory_object_stream[SessionMessage | Exception]()

            async def pass_on() -> None:
                try:
                    with contextlib.suppress(anyio.BrokenResourceError):
                        async with passed:
                            async for message in read:
                                await passed.send(message)
                finally:
                    session.ending.set()

            tasks.start_soon(pass_on)
            await made.run(received, write, made.create_initialization_options())
            tasks.cancel_scope.cancel()

    anyio.run(run)
