/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The user engine: the primitives of record.h in a program, over a file that it shares with
 * recorders (program_shm.h).
 *
 * It is part of every generated header. A program or shared library that includes several of them,
 * in many places, has it once: everything that is not inlined is weak and hidden, so the linker
 * keeps one copy for each module. KLOGGER_RUNTIME is a hash of this text and of the headers before
 * it; it tells whether inlined code and that copy are of the same version.
 *
 * The fast path of an event is inlined (event.h). What is needed once per module, thread, fork or
 * wake-up is out of line. Nothing here takes a lock, allocates, or calls a libc function that is
 * not async-signal-safe, except two that are called once before main().
 *
 * parts.in lists the files in the order of their dependencies.
 */
#ifndef KLOGGER_USER_H
#define KLOGGER_USER_H

#include "register.h"

#endif
