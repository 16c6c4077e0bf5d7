/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the recorder writes to and reads from the maps of the BPF engine: its structures and limits.
 */
#ifndef KLOGGER_BPF_CONFIG_H
#define KLOGGER_BPF_CONFIG_H

#include <klogger/ring.h>

#define KLOGGER_CPUS_MAX 8192		/* CPU numbers are below this: NR_CPUS */

/* How a hit begins: see klogger_begin(). */
enum klogger_beginning {
	KLOGGER_AT_ONCE = 0,
	KLOGGER_PREEMPTED = 1,		/* preemption must be off */
	KLOGGER_CHOOSES = 2,		/* first decides whether the thread is chosen */
	KLOGGER_CHOOSES_PREEMPTED = 3,
};

/*
 * What programs do that run with preemption on, on every kernel that preempts: those of functions,
 * of user space, and of iterators. See klogger_begin_preempted().
 */
enum klogger_preemption {
	KLOGGER_NONE = 0,		/* this kernel never preempts */
	KLOGGER_HELD_OFF = 1,		/* they disable preemption */
	KLOGGER_SHARED = 2,		/* before 6.11 they cannot: they use the nested ring */
};

/*
 * Which threads are chosen: those that match one of each list that is not empty (--comm, --uid,
 * --cgroup).
 */
#define KLOGGER_CHOICES 8		/* longest list */
#define KLOGGER_CGROUP_DEPTH 32		/* a cgroup's ancestors, itself included */
struct klogger_choice {
	__u32 comms;
	__u32 users;
	__u32 cgroups;
	__u8 all;				/* not only those that are followed */
	__u8 builtin;				/* this object has the built-in events */
	__u8 unused[2];
	__u64 comm[KLOGGER_CHOICES][2];		/* 16 bytes, filled up with zeros */
	__u64 cgroup[KLOGGER_CHOICES];		/* ids; descendants match as well */
	__u32 user[KLOGGER_CHOICES];
	__u32 controller[KLOGGER_CHOICES];	/* of cgroup[]: enum klogger_controller */
};

/*
 * Of which hierarchy a control group is: that of version 2, or one of version 1 by a controller
 * that is mounted with it. The ids of groups are unique in one hierarchy only.
 */
#define KLOGGER_CONTROLLERS(is)	\
	is(CPUSET, cpuset)	\
	is(CPU, cpu)		\
	is(CPUACCT, cpuacct)	\
	is(BLKIO, io)		\
	is(MEMORY, memory)	\
	is(DEVICES, devices)	\
	is(FREEZER, freezer)	\
	is(NET_CLS, net_cls)	\
	is(PERF_EVENT, perf_event) \
	is(NET_PRIO, net_prio)	\
	is(HUGETLB, hugetlb)	\
	is(PIDS, pids)		\
	is(RDMA, rdma)		\
	is(MISC, misc)

#define KLOGGER_CONTROLLER(name, id) KLOGGER_CONTROLLER_##name,
enum klogger_controller {
	KLOGGER_CONTROLLER_NONE,	/* version 2 */
	KLOGGER_CONTROLLERS(KLOGGER_CONTROLLER)
};
#undef KLOGGER_CONTROLLER

/* Names that threads out of scope have left: see names.h. */
#define KLOGGER_LEFT_NAMES 4096
struct klogger_left_name {
	__u64 serial;		/* from 1; 0: it is being written */
	__u64 until;		/* ns: then the thread ended, or got another name */
	__u64 start;		/* ns: when it started */
	__u32 tid;
	__u32 tgid;
	__u64 comm[2];		/* 16 bytes */
	__u64 ended;		/* 0: it has another name since */
};
struct klogger_left_names {
	__u64 head;		/* how many there were */
	struct klogger_left_name names[KLOGGER_LEFT_NAMES];
};

/* Set before loading. To the verifier these are constants, so it removes the branches not taken. */
struct klogger_config {
	__u32 rings;		/* CPUs that have one */
	__u32 mask;		/* size of a ring - 1 */
	__u32 base;		/* added to the ids of this object's events */
	__u32 grid_shift;	/* log2 of a grid part's bytes; only in overwrite mode */
	__u8 scoped;		/* only threads in scope are logged */
	__u8 overwrite;
	__u8 preempt;		/* programs can be preempted by other threads */
	/*
	 * 0: the first program at its attach point; others log hits that were skipped for those
	 * before
	 */
	__u8 copy;
	__u32 larger_mask;	/* size of a larger ring - 1; 0: rings do not grow */
	__u32 probes;		/* added to the numbers of this object's probes */
	__u8 beginning;		/* an enum klogger_beginning */
	__u8 preemption;	/* an enum klogger_preemption */
	__u8 calls_32;		/* the kernel has the system calls of 32-bit programs */
	__u8 unused;
	__u64 cpus[KLOGGER_CPUS_MAX / 64];	/* a bit for each CPU: see KLOGGER_SOME_CPUS */
	/* From the run queue of a CPU to the variable with its preemption count; 0: unknown. */
	__u64 preempt_count;
	/*
	 * The address of the variable that says where the structures of pages begin; 0: no schema
	 * asks.
	 */
	__u64 vmemmap;
	struct klogger_choice choice;
};

/*
 * `vmemmap`: the variable is not known, but they begin at a multiple of so many bytes, and end
 * before the next one.
 */
#define KLOGGER_VMEMMAP_ALIGNED 1
#define KLOGGER_VMEMMAP_ALIGNMENT (1ull << 30)

/*
 * The state of an event. The last two can be combined: it is on, with a rate limit, and only on the
 * CPUs whose bits are set.
 */
enum klogger_state {
	KLOGGER_OFF = 0,
	KLOGGER_ON = 1,
	KLOGGER_LIMITED = 2,
	KLOGGER_SOME_CPUS = 4,
};

#define KLOGGER_TIDS (1u << 22)		/* thread ids are below this: PID_MAX_LIMIT */

/*
 * The rate limit of an event, for all CPUs together; shared by all objects. Times are in sixteenths
 * of a ns. `due` is when the next event would come if all came evenly. Each event that is logged
 * advances it by `step`. Events that are left out only read it.
 */
struct klogger_rate {
	__u64 due;
	__u64 step;
	__u64 ahead;		/* how far `due` may be ahead of the clock: what may come at once */
};

/* Events that a rate limit left out. */
struct klogger_left_out {
	__u64 count;
	__u64 first;		/* ns */
	__u64 last;
};

/* Hits of a trigger on one CPU: see triggers.h. */
struct klogger_fired {
	__u64 hits;
	__u64 first;		/* ns */
	__u64 last;
	__u64 woken;		/* ns: when the recorder was woken last */
};

/* Copies of programs: see copies.h. */
#define KLOGGER_PROBES_MAX 1024		/* of all objects of a recording */
#define KLOGGER_COPY_BITS 3		/* a mark's number of the next copy */
#define KLOGGER_COPIES_MAX 6		/* of one program; the next one's number fits into a mark */
#define KLOGGER_MARKS 65536

_Static_assert(KLOGGER_COPIES_MAX + 1 < 1 << KLOGGER_COPY_BITS, "the number of the next copy");

/*
 * A place of a static probe of programs, and where its arguments are there. An argument is a sum:
 * `plus`, a register, and another one shifted by `scale`; or the memory at that address. Then it is
 * shifted to the left and to the right, which leaves the bits that it has. Registers are words of
 * `struct pt_regs`.
 */
#define KLOGGER_USDT_PLACES 1024	/* of one object */
#define KLOGGER_USDT_ARGUMENTS 12
#define KLOGGER_NO_REGISTER 0xffff
enum klogger_usdt_kind {
	KLOGGER_SUM = 0,
	KLOGGER_MEMORY = 1,
};
struct klogger_usdt_argument {
	__s64 plus;
	__u16 base;
	__u16 index;
	__u8 scale;
	__u8 kind;			/* an enum klogger_usdt_kind */
	__u8 left;
	__u8 right;
	__u8 is_signed;
	__u8 unused[7];
};
struct klogger_usdt {
	struct klogger_usdt_argument arguments[KLOGGER_USDT_ARGUMENTS];
};

/*
 * The upper half of a constant that klogger_place() begins with. The recorder sets the lower half
 * in the program of each place.
 */
#define KLOGGER_PLACE 0x4b500000

/*
 * System calls: see calls.h. A table has, by the number of a call, the slot of its first probe's
 * program, 0 for none; its last word is for numbers that no 64-bit call has. `next`: by the number
 * of a probe, the slot of the next program for the same call.
 */
#define KLOGGER_CALLS 512		/* numbers of 64-bit calls are below this */
#define KLOGGER_CALL_32 0x20000000	/* marks the number of a 32-bit call */
#define KLOGGER_CHAIN_MAX 32		/* programs for one call; the kernel allows 33 */
struct klogger_call_table {
	__u16 entry[KLOGGER_CALLS + 8];
	__u16 exit[KLOGGER_CALLS + 8];
	/* By the number of a 32-bit call, that of the 64-bit call of its name, or KLOGGER_CALLS. */
	__u16 named[KLOGGER_CALLS + 8];
	__u16 next[KLOGGER_PROBES_MAX];
};
/* In the first two: somebody asked for the 32-bit call with this number. */
#define KLOGGER_CALL_ASKED_32 0x8000

/*
 * A probe at several system calls, by number of the call: its place, and the slot of the next
 * program, which differs from call to call.
 */
struct klogger_call_list {
	__u16 place[KLOGGER_CALLS + 8];
	__u16 next[KLOGGER_CALLS + 8];
};
/* The numbers as probes of the two programs that are attached. */
#define KLOGGER_ENTRY_PROBE (KLOGGER_PROBES_MAX - 1)
#define KLOGGER_EXIT_PROBE (KLOGGER_PROBES_MAX - 2)

/*
 * The number of different stacks; frames of each; and frames of the tracing itself, which come
 * first.
 */
#define KLOGGER_STACKS_MAX 65536
#define KLOGGER_STACK_FRAMES 48
#define KLOGGER_STACK_SKIP 0

/*
 * User stacks: see user_stack.h. As many as the kernel walks; and space for the frames of all, in
 * which a stack takes three words and one for each frame and each word that is kept. In so many
 * words at the end of a program's stack return addresses are looked for; so many are kept.
 */
#define KLOGGER_USER_STACKS_MAX 65536
#define KLOGGER_USER_FRAMES 127
#define KLOGGER_USER_NEAR 128
#define KLOGGER_USER_KEPT 24
#define KLOGGER_USER_WORDS (1u << 21)
/*
 * What samples look at and keep, which come a hundred times a second and not at each switch. A
 * power of two, and at most 255.
 */
#define KLOGGER_USER_DEEP 2048
#define KLOGGER_USER_KEPT_DEEP 160
/*
 * A word that is kept is `n << 48 | what`, where n is how many words it is above the stack pointer.
 * It is an address after a call; or with this bit the frame pointer of a caller, in bytes above the
 * stack pointer.
 */
#define KLOGGER_USER_AT 48
#define KLOGGER_USER_IS_FRAME (1ull << 47)
#define KLOGGER_USER_NO_FRAME (~0ull)
struct klogger_user_slot {
	__u64 hash;		/* never 0 of a stack */
	__u64 place;		/* of its first word, from 1 */
};
struct klogger_user_stacks {
	__u64 used;		/* words */
	__u64 lost[4];		/* no slot was free, no space, the kernel could not walk it */
	struct klogger_user_slot slot[KLOGGER_USER_STACKS_MAX];
	/*
	 * The time; process id << 32 | words that are kept << 8 | number of frames; the frame
	 * pointer in bytes above the stack pointer, or KLOGGER_USER_NO_FRAME; the frames; and the
	 * words that are kept.
	 */
	__u64 word[KLOGGER_USER_WORDS + 3 + KLOGGER_USER_FRAMES + KLOGGER_USER_KEPT_DEEP];
};

/*
 * Where the threads of a process have the variable of `context otel`: see otel.h. The programs that
 * a process runs, one after the other, have different addresses of their stack.
 */
#define KLOGGER_OTEL_PROCESSES 16384
struct klogger_otel_place {
	__u64 stack;		/* where its first thread's stack began */
	__u64 offset;		/* from the thread pointer; or in the block of the module */
	__u64 generation;	/* since which the module is that one */
	__u32 module;		/* 0: none */
	__u32 unused;
};

#endif
