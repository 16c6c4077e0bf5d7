# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`klogger_page_pfn()`: the number that the kernel's own trace event has."""

import sys

from oracles import Log

SCHEMA = """
event PAGE { ulong pfn  uint power }
event RECORD { ulong pfn  uint power }

probe tracepoint mm_page_alloc(struct page *page, unsigned int order) {
    klogger(PAGE, klogger_page_pfn(page), order);
}
probe trace_event kmem:mm_page_alloc(unsigned long pfn, unsigned int order) {
    klogger(RECORD, pfn, order);
}
"""
# Pages of programs, of page tables, and larger ones of files. Huge ones would be few.
PROGRAM = """
import contextlib, mmap
for size in (1 << 16, 1 << 20, 1 << 23):
    memory = mmap.mmap(-1, size)
    with contextlib.suppress(OSError):
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    for at in range(0, size, 4096):
        memory[at] = 1
"""


def test_frames_are_those_of_the_trace_event(recorder, clean_kernel):
    schema = recorder.dir / "pages.klogger"
    schema.write_text(SCHEMA)
    done, path = recorder.run("-s", schema, "--", sys.executable, "-c", PROGRAM)
    assert done.code == 0, done.err
    log = Log(recorder.klogger, path)
    # Where no page was free, the trace event has the largest number, and the body 0.
    query = "SELECT cpu, pfn, power FROM {} WHERE pfn NOT IN (0, {}) ORDER BY cpu, serial"
    ours, theirs = (log.rows(query.format(event, 2**64 - 1)) for event in ("PAGE", "RECORD"))
    assert len(theirs) > 2000 and ours == theirs
