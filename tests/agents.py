# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""An agent's side of `klogger mcp`: the official SDK's own client, over stdio, for tests that are
no coroutines.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from anyio.from_thread import start_blocking_portal
from mcp import Client, StdioServerParameters

LIMIT = 4096
PYTHON = Path(__file__).resolve().parents[1] / "python"
KEPT = ("KLOGGER", "XDG_CACHE_HOME", "HOME", "PATH")


def parameters(folder: Path, config: str | None = None, **env: str) -> StdioServerParameters:
    """A server in a folder. `config`: the user's file; None: there is none."""
    home = folder / ".config"
    if config is not None:
        (home / "klogger").mkdir(parents=True, exist_ok=True)
        (home / "klogger" / "mcp.toml").write_text(config)
    kept = {key: os.environ[key] for key in KEPT if key in os.environ}
    return StdioServerParameters(
        command=sys.executable,
        args=["-m", "klogger_lab.cli.mcp"],
        cwd=folder,
        env={**kept, "PYTHONPATH": str(PYTHON), "XDG_CONFIG_HOME": str(home), **env},
    )


def is_harmless(value: Any) -> bool:
    """No text in it acts on a terminal; lines may end."""
    if isinstance(value, str):
        return value.replace("\n", "").isprintable()
    if isinstance(value, dict):
        return all(map(is_harmless, [*value, *value.values()]))
    return not isinstance(value, list) or all(map(is_harmless, value))


class Agent:
    """A client that is connected. `calls`: how many it has made."""

    def __init__(self, folder: Path, config: str | None = None, **env: str) -> None:
        self.folder = folder
        self.calls = 0
        self.server = parameters(folder, config, **env)
        self.stack = ExitStack()

    def __enter__(self) -> Agent:
        self.portal = self.stack.enter_context(start_blocking_portal())
        made = self.portal.wrap_async_context_manager(Client(self.server))
        self.client = self.stack.enter_context(made)
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    def tools(self) -> Any:
        return self.portal.call(self.client.list_tools).tools

    def ask(self, name: str, /, **arguments: Any) -> tuple[str, bool]:
        """The text of the answer as it came, and whether it is an error."""
        self.calls += 1
        result = self.portal.call(self.client.call_tool, name, arguments)
        (content,) = result.content
        assert len(content.text.encode()) <= LIMIT, (name, arguments)
        assert content.text.isprintable() and content.text.isascii()
        assert result.structured_content is None
        return content.text, result.is_error

    def call(self, name: str, /, **arguments: Any) -> dict[str, Any]:
        text, is_error = self.ask(name, **arguments)
        assert not is_error, (name, arguments, text)
        found = json.loads(text)
        assert isinstance(found, dict)
        return found

    def refused(self, name: str, /, **arguments: Any) -> dict[str, str]:
        text, is_error = self.ask(name, **arguments)
        assert is_error, (name, arguments, text)
        found = json.loads(text)
        assert set(found) <= {"error", "help"}
        return dict(found)

    def pages(self, name: str, /, **arguments: Any) -> Iterator[dict[str, Any]]:
        """All of an answer."""
        page = self.call(name, **arguments)
        yield page
        while "cursor" in page:
            page = self.call(name, **arguments, cursor=page["cursor"])
            yield page
