# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What pyproject.toml cannot say: the version is that of all of klogger, which stands in
Cargo.toml."""

import tomllib
from pathlib import Path

from setuptools import setup

cargo = tomllib.loads((Path(__file__).parent.parent / "Cargo.toml").read_text())
setup(version=cargo["workspace"]["package"]["version"])
