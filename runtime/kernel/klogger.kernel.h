/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The kernel engine: the primitives of record.h in kernel code, over rings that the core module
 * owns and the recorder maps.
 *
 * The fast path of an event is inlined: is it on (a NOP that is patched), this CPU's ring, clock,
 * space, fields, header word. It takes no lock and disables no interrupts: events that an
 * interrupt, a softirq or an NMI logs in the middle go to the nested ring (ring.h). The slow path
 * is one call away. That call preserves all registers, so that the fast path does not save any.
 */
#ifndef KLOGGER_KERNEL_H
#define KLOGGER_KERNEL_H

#include <linux/compiler.h>
#include <linux/jump_label.h>
#include <linux/kernel.h>
#include <linux/list.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/preempt.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <klogger/ring.h>
#include <klogger/record.h>
#include "kernel.h"

struct kprobe;
struct kretprobe;
struct tracepoint;

/* An event of a schema, for the core. */
struct klogger_event {
	const char *name;
	int allowed;		/* /proc/sys/klogger/NAME */
	int wanted;		/* set by the recorder */
};

enum klogger_attach_point_kind { KLOGGER_TRACEPOINT, KLOGGER_FUNCTION, KLOGGER_RETURN };

/* An attach point: one of a probe's alternatives. */
struct klogger_attach_point {
	const char *name;	/* of the tracepoint or function */
	void *call;		/* the handler of a tracepoint */
	struct kprobe *kprobe;
	struct kretprobe *kretprobe;
	struct tracepoint *tracepoint;	/* while it is attached */
	enum klogger_attach_point_kind kind;
	/* index of the probe in the schema, and of the alternative in the probe */
	u32 probe;
	u32 target;
	int error;
	bool attached;
};

/*
 * A schema in this kernel. Generated code defines one; it is registered while its module is loaded.
 */
struct klogger_unit {
	const char *name;
	const char *text;
	u32 length;		/* of the text, without a NUL */
	u32 events;
	u32 points;
	u64 base;		/* id of the first event; valid while the schema is used */
	struct klogger_event *event;
	struct static_key_false *key;	/* one for each event */
	struct klogger_attach_point *point;
	/* logs an event repeatedly, also if it is off */
	void (*bench)(u32 event, u32 iterations);
	/* the zero-initialized variables of the schema's C: begin and end; or NULL */
	char *variables;
	char *variables_end;
	struct module *owner;
	bool stacks;		/* some probe takes kernel stacks */
	bool used;		/* by the recording that runs */
	struct list_head list;
	struct klogger_sysctl *sysctl;
};

/*
 * Both may sleep. After unregister no code of the schema runs any more. Errors: -EEXIST (name of
 * schema or event), -ENOMEM.
 */
int klogger_register(struct klogger_unit *unit);
void klogger_unregister(struct klogger_unit *unit);

/*
 * The ring of this CPU; never NULL after the core has started. A CPU without a ring has one without
 * room.
 */
DECLARE_PER_CPU(struct klogger_ring *, klogger_ring);
extern unsigned long *klogger_scope;
extern struct static_key_false klogger_scoped;
extern struct static_key_false klogger_slow_clock;

/*
 * One probe hit, or one call. The clock is read and the ring found for the first event that is on
 * and in scope.
 */
struct klogger_hit {
	struct klogger_ring *ring;
	u64 time;
	u64 nest;		/* hits that this one interrupted */
};

/*
 * Tested by klogger() before it evaluates an event's arguments, so that an event that is off costs
 * nothing. Benchmarks log events that are off.
 */
#ifndef klogger_is_on
#define klogger_is_on(index) static_branch_unlikely(&KLOGGER_KEYS[index])
#endif
#define klogger_on(index) true
#define klogger_may(index, scope) (klogger_on(index) && (scope))

#define KLOGGER_TIDS (1u << 22)

static __always_inline bool klogger_in_scope(u32 tid)
{
	if (!static_branch_unlikely(&klogger_scoped))
		return true;
	return test_bit(tid & (KLOGGER_TIDS - 1), klogger_scope);
}

static __always_inline u32 klogger_current_tid(void)
{
	return current->pid;
}

#if defined(CONFIG_X86_64)
/* As of the BPF engine: in a system call its number, which is marked if it is a 32-bit call. */
static __always_inline int klogger_syscall_number(void)
{
	int number = task_pt_regs(current)->orig_ax;

	return in_ia32_syscall() ? number | 0x20000000 : number;
}
#endif

#define klogger_in_scope_current() \
	(!static_branch_unlikely(&klogger_scoped) || klogger_in_scope(klogger_current_tid()))

/* The same three functions as in the BPF engine, for klogger.klogger. */
static inline void klogger_scope_fork(u32 parent, u32 child)
{
	if (!static_branch_unlikely(&klogger_scoped))
		return;
	if (klogger_in_scope(parent))
		set_bit(child & (KLOGGER_TIDS - 1), klogger_scope);
	else
		clear_bit(child & (KLOGGER_TIDS - 1), klogger_scope);
}

/* The bpf engine keeps names here for the recorder, which else finds only those in /proc. */
#define klogger_leave_name(task, ended) ((void)(task))

/* The bpf engine decides here whether a thread is chosen; this one records all that it follows. */
#define klogger_scope_choose(task, comm) ((void)(task), (void)(comm))

static inline void klogger_scope_exec(u32 tid, u32 old_tid)
{
	if (!static_branch_unlikely(&klogger_scoped) || tid == old_tid ||
	    !klogger_in_scope(old_tid))
		return;
	set_bit(tid & (KLOGGER_TIDS - 1), klogger_scope);
	clear_bit(old_tid & (KLOGGER_TIDS - 1), klogger_scope);
}

static inline void klogger_scope_free(u32 tid)
{
	if (static_branch_unlikely(&klogger_scoped))
		clear_bit(tid & (KLOGGER_TIDS - 1), klogger_scope);
}

void *klogger_reserve_slow(struct klogger_ring *ring, u64 time, u32 id, u32 size);
u64 klogger_read_slow_clock(void);

/*
 * Calls the two functions, and preserves all registers but the result's, because otherwise the fast
 * path would have to save some.
 */
#ifdef CONFIG_X86_64
static __always_inline void *klogger_call_slow(struct klogger_ring *ring, u64 time, u32 id,
					       u32 size)
{
	void *record;

	asm volatile("call klogger_reserve_thunk"
		     : "=a"(record), ASM_CALL_CONSTRAINT
		     : "D"(ring), "S"(time), "d"(id), "c"(size)
		     : "memory", "cc");
	return record;
}

static __always_inline u64 klogger_call_clock(void)
{
	u64 time;

	asm volatile("call klogger_clock_thunk"
		     : "=a"(time), ASM_CALL_CONSTRAINT
		     :
		     : "memory", "cc");
	return time;
}
#else
#define klogger_call_slow klogger_reserve_slow
#define klogger_call_clock klogger_read_slow_clock
#endif

static __always_inline u64 klogger_clock(void)
{
	if (static_branch_unlikely(&klogger_slow_clock))
		return klogger_call_clock();
	return klogger_counter();
}

/* Tells the compiler, which then omits tests. */
#define klogger_is_not_null(pointer)             \
	do {                                     \
		if (!(pointer))                  \
			__builtin_unreachable(); \
	} while (0)

/* First the ring is claimed (`nest`), then the clock is read, so that main rings are sorted. */
static __always_inline void klogger_enter(struct klogger_hit *hit)
{
	preempt_disable_notrace();
	hit->ring = __this_cpu_read(klogger_ring);
	klogger_is_not_null(hit->ring);
	hit->nest = READ_ONCE(hit->ring->nest);
	hit->ring->nest++;
	barrier();
	hit->time = klogger_clock();
}

/* At the end of every hit. */
static __always_inline void klogger_leave(struct klogger_hit *hit)
{
	barrier();
	if (!hit->ring)
		return;
	hit->ring->nest--;
	preempt_enable_notrace();
}

/*
 * `size` bytes, a multiple of 8, at the writers' position; or NULL: the event is lost and was
 * counted. The load of `limit` pairs with the drain's release store after zeroing: the writer's
 * stores depend on its value. Between the load and the store of `head` no other writer uses this
 * ring: see ring.h.
 */
static __always_inline void *klogger_reserve_in(struct klogger_hit *hit, const u64 *base, u32 index,
						u32 size)
{
	struct klogger_ring *ring;
	u64 head, end;
	void *record;

	if (!hit->ring)
		klogger_enter(hit);
	ring = hit->ring;
	head = READ_ONCE(ring->head);
	end = head + size;
	if (unlikely(hit->nest | READ_ONCE(ring->missed)) || unlikely(end > READ_ONCE(ring->limit)))
		return klogger_call_slow(ring, hit->time, *base + index, size);
	WRITE_ONCE(ring->head, end);
	record = &ring->data[head & ring->mask];
	klogger_is_not_null(record);
	return record;
}

#define klogger_reserve(hit, index, size) klogger_reserve_in(hit, &KLOGGER_UNIT.base, index, size)

/* The header word comes last: pairs with the acquire load in the recorder's drain. */
#define klogger_commit(hit, record, index) \
	smp_store_release((u64 *)(record), ((hit)->time << 16) + KLOGGER_UNIT.base + (index))

/*
 * Reads memory that may be bad; then it stores zeros and does not return 0. For events, and for
 * bodies.
 */
int klogger_read(void *to, const void *from, size_t size);
/* A C string, cut to size - 1 bytes; the rest becomes zeros. Returns its length. */
u32 klogger_read_text(char *to, const char *from, size_t size);

/* This engine does not count what it could not read. */
#define klogger_copy(index, to, from, size) klogger_read(to, from, size)
#define klogger_copy_text(index, to, from, size) klogger_read_text(to, from, size)

/* A `string` to be logged: its length must be known before space is reserved. */
struct klogger_text {
	u32 length;
	char bytes[256];
};

static __always_inline void klogger_text_read(u32 index, struct klogger_text *text,
					      const char *from)
{
	text->length = klogger_read_text(text->bytes, from, sizeof(text->bytes));
}

static __always_inline void klogger_text_store(char *to, const struct klogger_text *text)
{
	memcpy(to, text->bytes, text->length);
}

/* For events with several `string`, or one of another length: bytes of the text, at most `most`. */
u32 klogger_text_length(const char *from, u32 most);

#define klogger_string_length(index, from, most) klogger_text_length(from, most)
#define klogger_string_store(index, to, from, length, most) klogger_read(to, from, length)

static __always_inline u32 klogger_context_tid(void)
{
	return current->pid;
}

static __always_inline u32 klogger_context_tgid(void)
{
	return current->tgid;
}

static __always_inline u32 klogger_context_prio(void)
{
	return current->prio;
}

u64 klogger_context_cgroup(void);

static __always_inline u32 klogger_context_ppid(void)
{
	u32 tgid;

	rcu_read_lock();
	tgid = rcu_dereference(current->real_parent)->tgid;
	rcu_read_unlock();
	return tgid;
}

/* What runs, as the table irq_level has it. */
static __always_inline u32 klogger_context_irq(void)
{
	return in_nmi() ? 3 : in_hardirq() ? 2 : in_serving_softirq() ? 1 : 0;
}

/* 0 while a thread ends, when it has left its namespaces. */
u32 klogger_context_netns(void);

static __always_inline u32 klogger_context_pidns_tid(void)
{
	return task_pid_vnr(current);
}

#define klogger_context_comm(to) memcpy(to, current->comm, sizeof(to))

/* 0 without CONFIG_MEMCG. */
u64 klogger_context_memcg(void);

#define klogger_context_stack() klogger_stack()

/* The number of the running thread's kernel stack, from the attach point on; 0: it has none. */
u32 klogger_stack(void);

/* The kernel does not let modules walk them. */
u32 klogger_user_stack(void)
	__attribute__((__error__("user stacks need the bpf engine: record with --engine bpf")));
#define klogger_context_user_stack() klogger_user_stack()

/* Available in bodies for every engine: the number of this CPU. */
#define klogger_cpu() raw_smp_processor_id()
#define klogger_global static __attribute__((unused))

/* A probe has one place in this engine. */
#define klogger_place() 0u

#endif
