/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * /dev/klogger: the interface between the recorder and the core module of the kernel engine.
 *
 * One recorder at a time has it open. The order of requests is: ABOUT; SCHEMA for each schema that
 * is loaded, and USE for those that are recorded (which also keeps their modules loaded); START
 * makes the rings; mmap; ATTACH; FORGET resets the variables of the schemata's C; EVENT switches
 * events on. Closing the file, or the end of the process, undoes all of it: events are switched
 * off, probes detached, rings freed as soon as they are not mapped any more.
 *
 * read() waits for rings that have passed their low-water marks, and returns CPU numbers, 4 bytes
 * each. The number KLOGGER_CALL_RESIZED means that buffer_size was changed: new rings are in use,
 * and the old ones are complete. The recorder then maps KLOGGER_MAP_RINGS again and drains the old
 * rings before the new ones. buffer_size can be changed again only after that.
 *
 * poll() returns POLLIN when read() would not wait.
 */
#ifndef KLOGGER_DEVICE_H
#define KLOGGER_DEVICE_H

#include "ring.h"
#include <linux/ioctl.h>

#define KLOGGER_DEVICE_VERSION 3
#define KLOGGER_CALL_RESIZED 0xffffffffu
#define KLOGGER_NAME_MAX 64

/* Offsets for mmap(), which select what is mapped. Lengths must be exact. */
/*
 * All CPUs' rings: `cpus` times `stride` bytes; in each the main ring comes first. A CPU that was
 * offline has none: its `mask` is 0.
 */
#define KLOGGER_MAP_RINGS (0ull << 40)
#define KLOGGER_MAP_SCOPE (1ull << 40)	  /* one bit for each thread id: KLOGGER_SCOPE_BYTES */
#define KLOGGER_MAP_RINGLESS (2ull << 40) /* __u64 by event id: events on CPUs that have no ring */
/* struct klogger_stacks, if START has set `stacks` */
#define KLOGGER_MAP_STACKS (3ull << 40)
/*
 * New memory for the recorder's own use, zeroed, of any length up to KLOGGER_ANCHOR_MAX, until the
 * file is closed. The recorder writes an anchor there, by which the rings are found in a memory
 * image if the kernel crashes.
 */
#define KLOGGER_MAP_ANCHOR (4ull << 40)
#define KLOGGER_ANCHOR_MAX (64u << 20)	/* bytes of all together */
#define KLOGGER_ANCHORS_MAX 64		/* one for the first rings, and one for each change */
/* struct klogger_fired_at by the number of a trigger, from 0: KLOGGER_FIRED_BYTES */
#define KLOGGER_MAP_FIRED (5ull << 40)
#define KLOGGER_FIRED_BYTES 4096u
#define KLOGGER_SCOPE_BYTES (1u << 19)

/* Hits of a trigger on all CPUs. Times are those of the engine's clock. */
struct klogger_fired_at {
	__u64 hits;
	__u64 first;
	__u64 last;
	__u64 woken;		/* when the recorder was woken last */
};

/* Kernel stacks whose numbers are in events: number n, from 1, is slot[n - 1]. */
#define KLOGGER_STACK_SLOTS 65536
#define KLOGGER_STACK_DEPTH 24

enum klogger_stack_state { KLOGGER_STACK_FREE, KLOGGER_STACK_BEGUN, KLOGGER_STACK_COMPLETE };

struct klogger_stack_slot {
	__u32 state;		/* enum klogger_stack_state */
	__u32 frames;
	__u64 frame[KLOGGER_STACK_DEPTH];	/* innermost first */
};

struct klogger_stacks {
	/* events whose stacks found no free slot; they have the number 0 */
	__u64 no_place;
	__u64 unused[511];
	struct klogger_stack_slot slot[KLOGGER_STACK_SLOTS];
};

enum klogger_kernel_clock {
	KLOGGER_KERNEL_CLOCK_MONOTONIC,	/* ktime_get_mono_fast_ns(), in ns */
	/* the CPU's cycle counter (TSC), which user space can read as well */
	KLOGGER_KERNEL_CLOCK_COUNTER,
};

struct klogger_about {
	__u32 version;		/* KLOGGER_DEVICE_VERSION */
	__u32 clock;		/* enum klogger_kernel_clock */
	__u32 cpus;		/* numbers of CPUs are below this */
	/* indices of loaded ones are below this; there may be gaps (-ENOENT) */
	__u32 schemata;
};

struct klogger_schema_about {
	__u32 index;		/* in: 0 is the built-in one, `klogger` */
	__u32 events;
	__u32 probes;		/* attach points, alternatives included */
	__u32 text_length;
	__u64 text_digest;	/* FNV-1a, 64 bits */
	char name[KLOGGER_NAME_MAX];
};

struct klogger_use {
	__u32 index;
	__u32 base;		/* id of the schema's first event */
	__u64 text_digest;	/* as in SCHEMA; a different one is -ESTALE */
};

struct klogger_start {
	/*
	 * bytes of each CPU's main ring, a power of two; 0: the value of
	 * /proc/sys/klogger/buffer_size
	 */
	__u64 ring_size;
	__u64 stride;		/* out: bytes from one CPU's rings to the next one's */
	__u32 lowwater;		/* percent; 0: the value of /proc/sys/klogger/lowwater */
	__u8 scoped;
	__u8 overwrite;
	__u8 stacks;		/* out: a schema in use asks for stacks */
	__u8 unused;
};

/* The rings that are in use now. */
struct klogger_rings_about {
	__u64 ring_size;
	__u64 stride;
};

struct klogger_event_on {
	__u32 id;
	__u32 on;
};

struct klogger_probe_about {
	__u32 index;		/* in: of the schema */
	__u32 place;		/* in: of the attach point, from 0 */
	__u32 probe;		/* of the schema's probes */
	__u32 target;		/* of this probe's alternatives */
	__s32 error;		/* why it is not attached (errno), or 0 */
	__u32 attached;
	__u64 missed;		/* hits that the kernel skipped */
	char name[KLOGGER_NAME_MAX];
};

#define KLOGGER_IOC_ABOUT _IOR('k', 0, struct klogger_about)
#define KLOGGER_IOC_SCHEMA _IOWR('k', 1, struct klogger_schema_about)
#define KLOGGER_IOC_USE _IOW('k', 2, struct klogger_use)
#define KLOGGER_IOC_START _IOWR('k', 3, struct klogger_start)
#define KLOGGER_IOC_ATTACH _IO('k', 4)
#define KLOGGER_IOC_EVENT _IOW('k', 5, struct klogger_event_on)
#define KLOGGER_IOC_DETACH _IO('k', 6)
#define KLOGGER_IOC_PROBE _IOWR('k', 7, struct klogger_probe_about)
#define KLOGGER_IOC_RINGS _IOR('k', 8, struct klogger_rings_about)
#define KLOGGER_IOC_FORGET _IO('k', 9)

#endif
