# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`klogger top`: the analyses of the last seconds, while it is recorded."""
