# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`klogger mcp`: klogger's answers for agents, by the Model Context Protocol (docs/mcp.md).

allowed    what the user's configuration allows; which files may be read
pages      answers of 4 kB, and cursors that continue them
schemata   what can be recorded, and what it answers; the skill text
recording  a recording within the bounds that are allowed
tools      the tools: their arguments, and their answers
server     the protocol, by the official SDK: the only module that needs it
"""
