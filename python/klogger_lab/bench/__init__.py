# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What klogger costs on this machine, now: each event of a schema beside the least that is
possible, and the rate that the recorder can follow.

A program hits one place again and again, in short blocks that take turns: with a probe that does
nothing, one that reads the clock, one that logs an event. What differs between two blocks that
stand side by side is what the event adds.
"""
