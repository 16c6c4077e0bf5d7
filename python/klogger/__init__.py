# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Asks klogger logs questions, in SQL and with the analyses that schemata bring.

    import klogger
    with klogger.open("boot.klog") as log:
        log.sql("SELECT pid, count(*) FROM SCHEDIN GROUP BY pid").df()
        log.events("SCHEDIN").limit(10).df()
        log.report().save("boot.html")

**Invariant:** this package knows no bytes of a log. `klogger export` turns a log into Parquet and
JSON, which is all that is read here.
"""

from klogger.failure import Failure
from klogger.log import Log, open

__all__ = ["Failure", "Log", "open"]
