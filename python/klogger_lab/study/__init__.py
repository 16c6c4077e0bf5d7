# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`klogger study`: an experiment of the KLogger paper, repeated on this machine.

A study is one file, `schemata/SCHEMA/studies/NAME.py`, that sets `STUDY` to a `model.Study`; its
programs stand beside it as C files. Nothing else has to be edited.
"""
