# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Where the elapsed time of threads went: each nanosecond in one bin, from the events of the schema
`waits`. docs/why.md has the bins, and how each is decided.

    events     what is read from a log, as arrays
    points     where the state of a thread may change
    spans      each thread's time, cut where its state changes
    occupants  who had the CPU that a thread waited for
    waits      what a thread waited for
    requests   what disks did, and for whom
    disks      waits for disks, cut by the stages of requests
    bins       the names of bins
    parts      the spans with their bins
    follow     what those did meanwhile that a thread waited for
    answer     all together
    text       as text
    explain    the difference of two
"""
