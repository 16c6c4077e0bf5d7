# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`klogger collect`: recordings of several machines, over ssh, on one time line."""
