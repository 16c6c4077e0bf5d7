# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What is said of a log, in a form that can be checked again on it (docs/mcp.md): what was asked,
the answer, the log, the events that it rests on, and what the log lacks.

    stated     values as a claim has them
    evidence   the events that a claim rests on; the state of the ledger
    asked      from a question to its answer, in parts
    claim      a claim, and whether it is true of a log
"""
