# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Vega, Vega-Lite and vega-embed as one script. To bundle it takes seconds, so it is kept in the
user's cache.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from importlib import metadata
from pathlib import Path

import vl_convert

from klogger.export import cache_home


def script() -> str:
    """The text for a script element. A cache that cannot be written is done without."""
    file = cache_home() / f"vega-{metadata.version('vl-convert-python')}.js"
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return file.read_text()
    # Without a snippet, the bundle is all of them.
    bundle: str = vl_convert.javascript_bundle()  # type: ignore[call-arg]
    bundle = bundle.replace("</script", "<\\/script")
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=file.parent)
        with os.fdopen(handle, "w") as out:
            out.write(bundle)
        Path(name).replace(file)
    return bundle
