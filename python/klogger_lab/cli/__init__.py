# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The programs `klogger-study`, `klogger-bench`, `klogger-stopwatch` and `klogger-guest`: one
module for each.

**Invariant:** nothing outside this package and `klogger.cli` prints or exits.
"""
