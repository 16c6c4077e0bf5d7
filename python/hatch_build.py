# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What pyproject.toml cannot say about the wheel: its version is that of all of klogger, which is
in Cargo.toml; it contains the schemata; and, if $KLOGGER_WHEEL_PROGRAM names it, the program
klogger, as scripts/wheel has it.
"""

from __future__ import annotations

import os
import sysconfig
import tomllib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

CHECKOUT = Path(__file__).resolve().parent.parent


class Version(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        cargo = tomllib.loads((CHECKOUT / "Cargo.toml").read_text())
        metadata["version"] = cargo["workspace"]["package"]["version"]


class Content(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        build_data["force_include"][str(CHECKOUT / "schemata")] = "klogger/schemata"
        program = os.environ.get("KLOGGER_WHEEL_PROGRAM")
        if program:
            build_data["shared_scripts"][program] = "klogger"
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{platform}"
