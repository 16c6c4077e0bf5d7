# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`klogger top --html`: a page on this machine that shows each frame as it comes."""
