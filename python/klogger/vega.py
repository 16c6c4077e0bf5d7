# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Vega, Vega-Lite and vega-embed as one script. A wheel has it (hatch_build.py). Elsewhere it is
bundled, which takes seconds, and kept in the user's cache.
"""

from __future__ import annotations

import contextlib
from importlib import metadata, resources

from klogger import extras, outputs
from klogger.export import cache_home
from klogger.failure import Failure


def script() -> str:
    """The text for a script element. A cache that cannot be written is done without."""
    with contextlib.suppress(FileNotFoundError):
        return (resources.files("klogger") / "page" / "vega.js").read_text()
    library = extras.SCRIPT.load()
    file = cache_home() / f"vega-{metadata.version('vl-convert-python')}.js"
    with contextlib.suppress(OSError, UnicodeDecodeError, Failure):
        outputs.own_folder(file.parent)
        return file.read_text()
    # Without a snippet, the bundle is all of them.
    bundle: str = library.javascript_bundle()
    bundle = bundle.replace("</script", "<\\/script")
    with contextlib.suppress(OSError, Failure):
        outputs.own_folder(file.parent)
        outputs.write(file, bundle.encode())
    return bundle
