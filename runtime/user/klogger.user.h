/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The user engine: the primitives of record.h in a program, over a file that it shares with
 * recorders (program_shm.h).
 *
 * Part of every generated header; a program or shared library that includes several, in many
 * places, has it once: all that is not inlined is weak and hidden, so the linker keeps one copy for
 * each module. KLOGGER_RUNTIME, a number that stands for this very text and for those of the
 * headers before it, tells whether inlined code and that copy belong together.
 *
 * The fast path of an event is inlined (event.h). What happens once per module, thread, fork or
 * half a ring is out of line. Nothing here takes a lock, allocates, or calls a function of libc
 * that a signal handler may not call, but for the two that are called once before main().
 *
 * parts.in lists the files, in the order in which they need each other.
 */
#ifndef KLOGGER_USER_H
#define KLOGGER_USER_H

#include "register.h"

#endif
