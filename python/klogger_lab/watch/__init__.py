# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`klogger watch`: crashes and dead-locks of a command's processes, while it runs.

`detect` finds them in the stream of events, and knows neither files nor processes; `stream` runs
the recorder and reads what it prints; `blocked` asks the kernel whether threads still wait;
`account` says what there is to say of a finding.
"""
