# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`klogger top`: the analyses of a schema over the last seconds, again and again.

`source` records, `window` makes a `Frame` of the last seconds, `cost` says how often, `behind`
finds the events behind a row; `screen` shows all that in a terminal.
"""
