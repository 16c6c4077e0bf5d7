/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The state of a module (program or shared library) and of its threads. */
#ifndef KLOGGER_USER_MODULE_H
#define KLOGGER_USER_MODULE_H

#include "platform.h"
#include "klogger/ring.h"
#include "klogger/program_shm.h"

KLOGGER_C_BEGIN

/*
 * One load finds a thread's ring, also in a signal handler. A library that is opened with dlopen()
 * on a libc without reserved space for this model (not glibc) may choose another one.
 */
#ifndef KLOGGER_TLS_MODEL
#define KLOGGER_TLS_MODEL "initial-exec"
#endif

/* One schema in this module. */
struct klogger_unit {
	const __u8 *on;		/* by index; points to zeros until there is a file */
	__u32 base;
	__u32 events;
	const char *name;
	const char *text;
	__u32 length;
	__u32 linked;
	const char *names;	/* of its events, each with its NUL */
	struct klogger_unit *next;
	__u64 runtime;		/* KLOGGER_RUNTIME of the code that logs its events */
};

/* One call of klogger(). */
struct klogger_hit {
	struct klogger_ring *ring;
	__u64 time;
	__u64 nest;
	__u32 base;
	__u32 slow;		/* not on the fast path */
	__u32 again;		/* the fast path gave up: to be logged on the slow one */
};

/* The state of this module. */
struct klogger_module {
	__u64 mask;			/* size of a main ring - 1 */
	__u32 tsc;			/* the clock */
	__u32 pid;
	struct klogger_control *control;
	struct klogger_control_rest *rest;
	char *slots;			/* the first one */
	/* each slot's main ring while a thread has it, in memory that the kernel wipes on fork */
	struct klogger_ring **cells;
	/* the cell after those: not empty until the process forks */
	struct klogger_ring **same;
	struct klogger_unit *units;
	struct klogger_unit *twins;	/* units with the same text as one of these */
	pthread_key_t key;		/* its destructor frees a thread's slot */
	__u32 has_key;
	__u32 used;			/* a thread has had a ring */
	__u64 page;			/* bytes of a page */
	char path[256];
};

struct klogger_thread {
	/* this thread's cell, or one that is always empty */
	struct klogger_ring *volatile *ring;
	struct klogger_ring *volatile *slow;	/* the same, with any clock */
	__u32 slot;		/* its number + 1 */
	__u32 tid;
	__u32 busy;		/* is looking for a slot, so a signal handler must not */
	__u32 patience;		/* events to lose before it looks again */
	__u32 nested_ready;
	__u32 looks;
};

KLOGGER_SHARED struct klogger_module klogger_module = KLOGGER_NOTHING;
KLOGGER_SHARED __u8 klogger_all_off[KLOGGER_EVENTS_MAX] = KLOGGER_NOTHING;
KLOGGER_SHARED struct klogger_unit klogger_own = {
	klogger_all_off, 1, 0, "klogger", "", 0, 1, "", NULL, KLOGGER_RUNTIME
};
KLOGGER_SHARED struct klogger_ring *volatile klogger_no_ring = NULL;
KLOGGER_SHARED __attribute__((
	tls_model(KLOGGER_TLS_MODEL))) __thread struct klogger_thread klogger_thread = {
	&klogger_no_ring, &klogger_no_ring, 0, 0, 0, 0, 0, 0
};

KLOGGER_C_END

#endif
