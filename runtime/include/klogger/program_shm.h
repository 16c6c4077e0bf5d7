/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The file that a program shares with recorders: which events are on, and a ring for each thread
 * that logs.
 *
 * Where. A program that includes a generated header makes one file before main(), for itself or, in
 * a shared library, for the library (a *module* each): DIR/PID.IMAGE, where IMAGE (hexadecimal)
 * tells modules of one process from each other, and from those of the program that it was before an
 * exec. DIR is $KLOGGER_DIR, or /dev/shm/klogger-UID, or $XDG_RUNTIME_DIR/klogger: a folder of this
 * user's (0700). The file (0600) is made under a name that begins with a dot and renamed when it is
 * complete, so that whoever sees it can use it. All of it is mapped at once and the descriptor
 * closed: so threads get their rings after a chroot, after privileges are dropped, and in a process
 * that has closed all its files. It is sparse: what nobody uses takes no memory.
 *
 * Who owns what. A recorder believes nothing that stands here without checking it, and a program
 * nothing that would make it do more than log or not log.
 *
 *   control page    magic to modules' names: the program, before the rename. `token`, `on`, `armed`
 *                   and what follows it: the recorder; the program itself at registration
 *                   (KLOGGER_RECORD) and in a forked child
 *   schema texts    the program, before the rename; a shared library's headers are all known by
 *                   then
 *   lost[]          the program: events of threads that have no ring, by local id (atomic)
 *   slots           see below
 *
 * Ids. Events have local ids here: 1 to 15 are klogger's own (klogger.klogger), then come the
 * module's schemata, each with the ids base, base + 1, ... in the order of its events. The recorder
 * translates.
 *
 * Slots. A slot is a thread's two rings, as in ring.h: the main one and, for signal handlers that
 * interrupt an event, the nested one. `use` counts: even: free; odd: used by `tid`. The thread that
 * takes a free slot adds one (compare-and-swap), when its thread ends adds one again; the recorder
 * has then to empty the slot, and to set `emptied` to `use`: a free slot whose `emptied` is not
 * `use` still holds what the last thread logged, and is not taken while a recorder is at work
 * (`armed`). Positions run on from one use to the next, as the reader's do.
 *
 * A recorder that is killed leaves its programs armed. The kernel then notes in `keeper` that it
 * has died, by the list of robust futexes of the recorder's thread: programs need no system call to
 * know it, whatever they may see of other processes. They look when a ring is full, and turn their
 * events off; what the rings hold waits for `klogger rescue`.
 *
 * Time in header words and in LOST is, by `clock`, the low 48 bits of the TSC, or of
 * CLOCK_MONOTONIC (ns); klogger_lost.since has all 64 bits.
 */
#ifndef KLOGGER_PROGRAM_SHM_H
#define KLOGGER_PROGRAM_SHM_H

#include "ring.h"

#define KLOGGER_CONTROL_MAGIC 0x6c7274636767766bull
#define KLOGGER_CONTROL_VERSION 1
#define KLOGGER_SCHEMATA_MAX 15		/* of one module */
#define KLOGGER_TEXT_MAX (1u << 18)	/* bytes of all its schema texts */
#define KLOGGER_LOCAL_BASE 16		/* local id of the first event that is not klogger's own */
#define KLOGGER_MARK_ID 7	/* MARK in klogger.klogger */
#define KLOGGER_SLOTS_MAX 4096
#define KLOGGER_USER_RING_MIN (1u << 14)
#define KLOGGER_USER_RING_MAX (1u << 26)

#define KLOGGER_KEEPER_DIED 0x40000000u	/* FUTEX_OWNER_DIED */

enum klogger_clock { KLOGGER_CLOCK_MONOTONIC, KLOGGER_CLOCK_TSC };

struct klogger_module_schema {
	__u32 base;		/* local id of its first event */
	__u32 events;
	__u32 text;		/* where its text begins, from the start of the file */
	__u32 length;		/* of the text, without a NUL */
	char name[48];
};

struct klogger_control {
	__u64 magic;
	__u32 version;
	/* as the program sees itself: another number in another pid namespace */
	__u32 pid;
	__u64 image;		/* the IMAGE of the file's name */
	/* of the recording, by KLOGGER_RECORD or from the recorder that armed it; or 0 */
	__u64 token;
	__u64 size;		/* of the file */
	__u32 slots;		/* in the file */
	__u32 ring_size;	/* bytes of each main ring; a power of two */
	__u64 slots_at;		/* offset of the first slot */
	__u64 slot_stride;	/* from one to the next */
	__u32 clock;		/* enum klogger_clock */
	__u32 schemata;
	/* the process that forked it, if it has not called exec since; or 0 */
	__u32 parent;
	__u32 failed;		/* why threads got no ring: errno of the last attempt, or 0 */

	/* Written by the recorder. */
	__u32 armed;		/* a recorder's pid (as it sees itself); 0: nobody records */
	__u32 slots_allowed;	/* no more than so many in use at once */
	/* 1: rings overwrite what is old; set at registration (KLOGGER_FLIGHT), never changed */
	__u32 flight;
	/* futex: the program adds one and wakes it when a ring has passed its low-water mark */
	__u32 call;
	/* the program's: inode number of its pid namespace, which gives `pid` its meaning; or 0 */
	__u64 pid_ns;

	/*
	 * Written by the recorder, and by the kernel when the recorder's thread has died without a
	 * word.
	 */
	__u32 keeper;		/* robust futex: 0, the id of that thread, or KLOGGER_KEEPER_DIED */
	__u32 unused;
	/* when a thread found a full ring and a dead keeper, and turned all events off; or 0 */
	__u64 abandoned;
	__u64 reserved[15];

	struct klogger_module_schema schema[KLOGGER_SCHEMATA_MAX];
	__u8 on[KLOGGER_EVENTS_MAX];	/* by local id; 1: logged */
	/* if they fit in */
	char first_texts[4096 - 240 - 64 * KLOGGER_SCHEMATA_MAX - KLOGGER_EVENTS_MAX];
};

_Static_assert(sizeof(struct klogger_control) == 4096, "the control page is a page");

struct klogger_slot {
	__u32 use;
	__u32 tid;
	__u32 emptied;
	__u32 unused;
};

/* After the control page; no page of it exists before it is needed. */
struct klogger_control_rest {
	char texts[KLOGGER_TEXT_MAX];
	__u64 lost[KLOGGER_EVENTS_MAX];
	struct klogger_slot slot[KLOGGER_SLOTS_MAX];
};

/* A slot: main ring, then nested ring. */
#define KLOGGER_RING_BYTES(size) (sizeof(struct klogger_ring) + (size) + KLOGGER_SLACK)
#define KLOGGER_SLOT_BYTES(size) (KLOGGER_RING_BYTES(size) + KLOGGER_RING_BYTES(KLOGGER_NESTED))
#define KLOGGER_SLOTS_AT (sizeof(struct klogger_control) + sizeof(struct klogger_control_rest))

#endif
