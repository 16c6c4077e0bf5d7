# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Experiments with klogger: studies, benchmarks, the stopwatch and guests, which run the recorder
and read its logs.

Everything about logs that exist is in `klogger`, which never imports this package.
"""
