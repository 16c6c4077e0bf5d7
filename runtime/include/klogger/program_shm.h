/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The file that a program shares with recorders: which events are on, and a ring for each thread
 * that logs.
 *
 * Where. A program that includes a generated header makes one file before main(), for itself or, in
 * a shared library, for the library (a *module* each): DIR/PID.IMAGE. IMAGE (hexadecimal)
 * distinguishes the modules of one process, and the process before and after an exec. DIR is
 * $KLOGGER_DIR, or /dev/shm/klogger-UID, or $XDG_RUNTIME_DIR/klogger: a folder of this user (mode
 * 0700). The file (mode 0600) is made under a name that begins with a dot and renamed when it is
 * complete, so that a visible file can be used. All of it is mapped at once and the descriptor
 * closed, so that threads get their rings after a chroot, after privileges are dropped, and in a
 * process that has closed all its files. It is sparse: unused parts take no memory.
 *
 * Who writes what. To the recorder the file is untrusted: each value is checked before use. What a
 * recorder writes here only tells a program whether to log.
 *
 *   control page    magic to modules' names: the program, before the rename. `token`, `on`, `armed`
 *                   and what follows it: the recorder; the program itself at registration
 *                   (KLOGGER_RECORD) and in a forked child
 *   schema texts    the program, before the rename; a shared library's headers are all known by
 *                   then
 *   lost[]          the program: events of threads that have no ring, by local id (atomic)
 *   slots           see below
 *
 * Ids. Events have local ids here: 1 to 15 are klogger's own (klogger.klogger). Those of the
 * module's schemata follow, each with the ids base, base + 1, ... in the order of its events. The
 * recorder translates them.
 *
 * Slots. A slot contains the two rings of a thread, as in ring.h: the main ring and, for signal
 * handlers that interrupt an event, the nested ring. `use` counts: even: free; odd: used by `tid`.
 * The thread that takes a free slot adds one (compare-and-swap), and adds one again when it ends.
 * The recorder then drains the slot, and sets `emptied` to `use`. A free slot whose `emptied` is
 * not `use` still contains records of the last thread, and is not taken while the program is
 * recorded (`armed`). Positions continue from one use to the next, as the reader's do.
 *
 * A recorder that is killed leaves its programs armed. The kernel then marks `keeper`, by the list
 * of robust futexes of the recorder's thread. So programs need no system call to see that it has
 * died, even in another pid namespace. They test `keeper` when a ring is full, and turn their
 * events off; the records in the rings stay for `klogger rescue`.
 *
 * Times in header words and in LOST are, by `clock`, the low 48 bits of the TSC, or of
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
	/* as the program sees itself; in another pid namespace it has another number */
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
	__u32 armed;		/* a recorder's pid (as it sees itself); 0: not recorded */
	__u32 slots_allowed;	/* limit of slots in use at the same time */
	/* 1: rings overwrite old records; set at registration (KLOGGER_FLIGHT), never changed */
	__u32 flight;
	/* futex: the program adds one and wakes it when a ring has passed its low-water mark */
	__u32 call;
	/* the program's: inode number of its pid namespace, in which `pid` is valid; or 0 */
	__u64 pid_ns;

	/* Written by the recorder, and by the kernel when the recorder's thread has died. */
	__u32 keeper;		/* robust futex: 0, the id of that thread, or KLOGGER_KEEPER_DIED */
	__u32 unused;
	/* when a thread found a full ring and a dead keeper, and turned all events off; or 0 */
	__u64 abandoned;
	__u64 reserved[15];

	struct klogger_module_schema schema[KLOGGER_SCHEMATA_MAX];
	__u8 on[KLOGGER_EVENTS_MAX];	/* by local id; 1: logged */
	/* if they fit */
	char first_texts[4096 - 240 - 64 * KLOGGER_SCHEMATA_MAX - KLOGGER_EVENTS_MAX];
};

_Static_assert(sizeof(struct klogger_control) == 4096, "the control page is a page");

struct klogger_slot {
	__u32 use;
	__u32 tid;
	__u32 emptied;
	__u32 unused;
};

/* After the control page; its pages are allocated when they are needed. */
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
