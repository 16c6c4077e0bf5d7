# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The paper's stopwatch: how long it takes from one point to another.

`events` pairs any two events of a log. `places` turns two points of the kernel into a schema with
START and STOP, and `live` records with it; the pairs themselves are the analyses of
`schemata/stopwatch`.
"""

from klogger.stopwatch.events import Stopwatch, measure

__all__ = ["Stopwatch", "measure"]
