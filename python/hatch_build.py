# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What pyproject.toml cannot say about the wheel: its version is that of all of klogger, which is
in Cargo.toml; it contains the schemata, and the script with which pages draw; and, if
$KLOGGER_WHEEL_PROGRAM names it, the program klogger, with the man pages and completions of
$KLOGGER_WHEEL_SHARE, as scripts/wheel has it.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

CHECKOUT = Path(__file__).resolve().parent.parent
PAGES = "vl-convert-python"


class Version(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        cargo = tomllib.loads((CHECKOUT / "Cargo.toml").read_text())
        metadata["version"] = cargo["workspace"]["package"]["version"]


class Content(BuildHookInterface[Any]):
    def dependencies(self) -> list[str]:
        """To build with, which who installs the wheel does without."""
        project = tomllib.loads((CHECKOUT / "python" / "pyproject.toml").read_text())["project"]
        extras = project["optional-dependencies"].values()
        return [one for extra in extras for one in extra if one.startswith(PAGES)]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        # Not in the checkout; it goes with the builder.
        self.made = tempfile.TemporaryDirectory(prefix="klogger-wheel-")
        script = Path(self.made.name) / "vega.js"
        script.write_text(page_script())
        included = build_data["force_include"]
        included[str(CHECKOUT / "schemata")] = "klogger/schemata"
        included[str(script)] = "klogger/page/vega.js"
        program = os.environ.get("KLOGGER_WHEEL_PROGRAM")
        if program:
            build_data["shared_scripts"][program] = "klogger"
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{runs_on(program)}"
        if share := os.environ.get("KLOGGER_WHEEL_SHARE"):
            build_data["shared_data"][share] = "share"


def page_script() -> str:
    """Vega, Vega-Lite and vega-embed, for an element of a page."""
    import vl_convert

    bundle: str = vl_convert.javascript_bundle()
    return bundle.replace("</script", "<\\/script")


def runs_on(program: str) -> str:
    """The tag of systems whose C library has all that the program takes from it."""
    words = ["objdump", "--dynamic-syms", program]
    symbols = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    needed = [(int(a), int(b)) for a, b in re.findall(r"\bGLIBC_(\d+)\.(\d+)", symbols)]
    if not needed:
        raise SystemExit(f"{program} is not a program of the GNU C library")
    major, minor = max(needed)
    return f"manylinux_{major}_{minor}_{platform.machine()}"
