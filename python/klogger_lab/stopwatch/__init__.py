# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The paper's stopwatch over two points of the kernel, which it records itself.

`places` turns the two points into a schema with START and STOP, `live` records with it, and
`answer` collects what the analyses of `schemata/stopwatch` find. `klogger.stopwatch` pairs any two
events of a log that exists.
"""
