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
 * The straight path of an event: is it on, this thread's ring, clock, space, fields, header word.
 * What happens once per module, thread, fork or half a ring is out of line. Nothing here takes a
 * lock, allocates, or calls a function of libc that a signal handler may not call, but for the two
 * that are called once before main().
 */
#ifndef KLOGGER_USER_H
#define KLOGGER_USER_H

#if !defined(__linux__) || __SIZEOF_POINTER__ != 8
#error "klogger's user engine needs a 64-bit Linux; compile with -DKLOGGER_OFF elsewhere"
#endif

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#ifdef __x86_64__
#include <cpuid.h>
#endif

#ifdef __cplusplus
extern "C" {
#define KLOGGER_NOTHING {}
#else
#define KLOGGER_NOTHING { 0 }
#endif
#ifndef __always_inline
#define __always_inline inline __attribute__((always_inline))
#endif

/* -std=c11 hides these, which every libc of Linux has. */
#if defined(__STRICT_ANSI__) && !defined(__cplusplus) && !defined(_GNU_SOURCE)
extern long syscall(long number, ...);
extern int clock_gettime(int clock, struct timespec *ts);
#endif
#ifndef CLOCK_MONOTONIC
#define CLOCK_MONOTONIC 1
#endif
#ifndef AT_FDCWD
#define AT_FDCWD -100
#endif
#ifndef O_CLOEXEC
#define O_CLOEXEC __O_CLOEXEC
#endif
#ifndef O_NOFOLLOW
#define O_NOFOLLOW __O_NOFOLLOW
#endif
#ifndef O_DIRECTORY
#define O_DIRECTORY __O_DIRECTORY
#endif
#ifndef MAP_ANONYMOUS
#define MAP_ANONYMOUS 0x20
#endif
#ifndef MAP_NORESERVE
#define MAP_NORESERVE 0x4000
#endif
#define KLOGGER_MADV_WIPEONFORK 18
#define KLOGGER_MADV_DONTDUMP 16
#define KLOGGER_MADV_POPULATE_WRITE 23	/* Linux 5.14 */
#define KLOGGER_FUTEX_WAKE 1
#define KLOGGER_FIRST_PID_NS 0xeffffffcu	/* the kernel's number for it */
#define KLOGGER_RLIMIT_FSIZE 1
#define KLOGGER_RLIMIT_AS 9

#define klogger_likely(x) __builtin_expect(!!(x), 1)
#define klogger_unlikely(x) __builtin_expect(!!(x), 0)
#define klogger_barrier() __asm__ volatile("" ::: "memory")
#define KLOGGER_VOLATILE(x) (*(volatile __typeof__(x) *)&(x))
#define KLOGGER_SHARED __attribute__((weak, visibility("hidden")))
#define KLOGGER_SLOW __attribute__((weak, visibility("hidden"), noinline, cold))
#define KLOGGER_CAREFUL __attribute__((unused, noinline, cold))
/*
 * One load finds a thread's ring, and a signal handler may do it. A library that is opened with
 * dlopen() on a libc which keeps no room for that (not glibc) may choose another.
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
	__u32 careful;		/* not the straight path */
	__u32 again;		/* the straight path was not straight */
};

/* What this module knows of itself. */
struct klogger_module {
	__u64 mask;			/* size of a main ring - 1 */
	__u32 tsc;			/* the clock */
	__u32 pid;
	struct klogger_control *control;
	struct klogger_control_rest *rest;
	char *slots;			/* the first one */
	/* each slot's main ring while a thread has it, in memory that a fork wipes */
	struct klogger_ring **cells;
	/* the cell after those: not empty as long as the process has not forked */
	struct klogger_ring **same;
	struct klogger_unit *units;
	struct klogger_unit *twins;	/* each has the text of one of these */
	pthread_key_t key;		/* its destructor gives a thread's slot back */
	__u32 has_key;
	__u32 used;			/* a thread has had a ring */
	__u64 page;			/* bytes of a page */
	char path[256];
};

struct klogger_thread {
	/* this thread's cell, or one that is always empty */
	struct klogger_ring *volatile *ring;
	struct klogger_ring *volatile *careful;	/* the same, whatever the clock */
	__u32 slot;		/* its number + 1 */
	__u32 tid;
	__u32 busy;		/* looks for a slot just now: a signal handler must not */
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
KLOGGER_SHARED __attribute__((tls_model(KLOGGER_TLS_MODEL))) __thread struct klogger_thread klogger_thread = {
	&klogger_no_ring, &klogger_no_ring, 0, 0, 0, 0, 0, 0
};

/* ---- The straight path ---- */

/*
 * Without a hit of its own, as there is no probe: each call is one. klogger_call_EVENT() is
 * generated.
 */
#undef klogger
#define klogger(event, ...) klogger_call_##event(__VA_ARGS__)

/*
 * A load of the pointer, a comparison in memory, a branch that is never taken while the event is
 * off. As a volatile load the comparison would cost one instruction more.
 */
static __always_inline int klogger_is_on(const __u8 *flag)
{
#ifdef __x86_64__
	__asm__ goto("cmpb $0, %0\n\tjne %l[on]" : : "m"(*flag) : "cc" : on);
	return 0;
on:
	return 1;
#else
	return KLOGGER_VOLATILE(*flag);
#endif
}

#define klogger_on(index) klogger_unlikely(klogger_is_on(&KLOGGER_VOLATILE(KLOGGER_UNIT.on)[index]))
#define klogger_may(index, scope) (klogger_on(index) && (scope))
#define klogger_in_scope(tid) 1
#define klogger_in_scope_current() 1

static inline __u64 klogger_monotonic(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (__u64)ts.tv_sec * 1000000000u + (__u64)ts.tv_nsec;
}

static __always_inline __u64 klogger_tsc(void)
{
#ifdef __x86_64__
	return __builtin_ia32_rdtsc();
#else
	return 0;
#endif
}

/*
 * Pairs with the acquire load in the recorder's drain: whoever sees the header word sees the
 * fields.
 */
static __always_inline void klogger_publish(__u64 *header, __u64 value)
{
	__atomic_store_n(header, value, __ATOMIC_RELEASE);
}

void *klogger_reserve_with_care(struct klogger_hit *hit, __u32 id, __u32 size);

static __always_inline void klogger_leave(struct klogger_hit *hit)
{
	klogger_barrier();
	if (hit->ring)
		KLOGGER_VOLATILE(hit->ring->nest) = hit->nest;
}

/*
 * `size` bytes at the writers' position.
 *
 * The straight path calls nothing: else the compiler would save registers around it. Whatever is
 * not straight (no ring yet, a signal handler in the middle of an event, a ring half full) makes it
 * give up and leave no trace; klogger_slow_EVENT() then begins again, with care. A program whose
 * clock is not the TSC is never straight.
 *
 * The load of `limit` pairs with the drain's release store after zeroing: the stores that follow
 * depend on its value. Nobody but a signal handler interrupts between the load and the store of
 * `head`, and that finds `nest` and uses the nested ring. So main rings are sorted by time, though
 * the clock is read after space was taken: as late as that, because whatever follows the
 * instruction waits for it.
 */
static __always_inline void *klogger_reserve_in(struct klogger_hit *hit, const struct klogger_unit *unit, __u32 index,
						__u32 size)
{
	struct klogger_ring *ring;
	__u64 head, end;

	hit->base = unit->base;
	if (hit->careful)
		return klogger_reserve_with_care(hit, hit->base + index, size);
	ring = *klogger_thread.ring;
	hit->again = 1;
	if (klogger_unlikely(!ring || KLOGGER_VOLATILE(ring->nest)))
		return NULL;
	KLOGGER_VOLATILE(ring->nest) = 1;
	klogger_barrier();
	hit->ring = ring;
	head = KLOGGER_VOLATILE(ring->head);
	end = head + size;
	if (klogger_unlikely(KLOGGER_VOLATILE(ring->missed) || end > __atomic_load_n(&ring->limit, __ATOMIC_ACQUIRE)))
		return NULL;
	hit->again = 0;
	KLOGGER_VOLATILE(ring->head) = end;
	hit->time = klogger_tsc();
	return &ring->data[head & klogger_module.mask];
}

#define klogger_reserve(hit, index, size) klogger_reserve_in(hit, &KLOGGER_UNIT, index, size)

static __always_inline void klogger_commit(struct klogger_hit *hit, void *record, __u32 index)
{
	klogger_publish((__u64 *)record, KLOGGER_HEADER(hit->time, (__u64)(hit->base + index)));
}

/* A program reads its own memory, which is there, or else it crashes. */
#define klogger_copy(index, dst, src, size) memcpy(dst, src, size)
#define klogger_copy_text(index, dst, src, size) klogger_copy_string(dst, src, size)
#define klogger_text_read(index, text, src) klogger_text_measure(text, src)

/* Fills up with zeros, which in a flight recorder's ring are not there already. */
static __always_inline void klogger_copy_string(char *dst, const char *src, size_t size)
{
	size_t i = 0;

	for (; src && i + 1 < size && src[i]; i++)
		dst[i] = src[i];
	memset(dst + i, 0, size - i);
}

/* A `string` on its way: it must be measured before space for it can be reserved. */
struct klogger_text {
	const char *from;
	__u32 length;
};

static __always_inline void klogger_text_measure(struct klogger_text *text, const char *src)
{
	__u32 n = 0;

	while (src && n < 255 && src[n])
		n++;
	text->from = src;
	text->length = n;
}

static __always_inline void klogger_text_store(char *dst, const struct klogger_text *text)
{
	if (text->length)
		memcpy(dst, text->from, text->length);
}

/* For `context tid` and `context tgid`; known since the thread has a ring. */
static __always_inline __u32 klogger_context_tid(void)
{
	return klogger_thread.tid;
}

static __always_inline __u32 klogger_context_tgid(void)
{
	return klogger_module.pid;
}

/* ---- Half a ring, or a full one ---- */

KLOGGER_SLOW void klogger_call_reader(struct klogger_ring *ring)
{
	__u32 *call = &klogger_module.control->call;

	KLOGGER_VOLATILE(ring->limit) = KLOGGER_VOLATILE(ring->hard);
	__atomic_add_fetch(call, 1, __ATOMIC_RELEASE);
	syscall(SYS_futex, call, KLOGGER_FUTEX_WAKE, 1, NULL, NULL, 0);
}

/*
 * After an event was lost. If the recorder is dead, nobody will make room: all events go off, which
 * costs nothing any more, and whoever comes next turns them on again. Pairs with the next
 * recorder's exchange of `abandoned`.
 */
KLOGGER_SLOW void klogger_give_up(struct klogger_control *control, __u64 time)
{
	__u32 died = KLOGGER_KEEPER_DIED;

	if (!__atomic_compare_exchange_n(&control->keeper, &died, 0, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
		return;
	memset(control->on, 0, sizeof(control->on));
	__atomic_store_n(&control->abandoned, time, __ATOMIC_RELEASE);
}

KLOGGER_SLOW void klogger_count_lost(struct klogger_ring *ring, __u64 time, __u32 id)
{
	if (klogger_unlikely(KLOGGER_VOLATILE(klogger_module.control->keeper) & KLOGGER_KEEPER_DIED))
		klogger_give_up(klogger_module.control, time);
	if (!KLOGGER_VOLATILE(ring->missed))
		KLOGGER_VOLATILE(ring->missed_since) = time;
	__atomic_add_fetch(&ring->missed, 1, __ATOMIC_RELAXED);
	__atomic_add_fetch(&ring->lost[id & (KLOGGER_EVENTS_MAX - 1)], 1, __ATOMIC_RELAXED);
}

/* By compare-and-swap, for signal handlers share a nested ring. */
KLOGGER_SLOW void *klogger_claim(struct klogger_ring *ring, __u64 mask, __u32 size)
{
	__u64 head = KLOGGER_VOLATILE(ring->head);

	do {
		if (head + size > __atomic_load_n(&ring->hard, __ATOMIC_ACQUIRE))
			return NULL;
	} while (!__atomic_compare_exchange_n(&ring->head, &head, head + size, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	return &ring->data[head & mask];
}

/* Says in the ring itself how many events are missing before the one that follows. */
KLOGGER_SLOW int klogger_put_lost(struct klogger_ring *ring, __u64 mask, __u64 time)
{
	__u64 since = KLOGGER_VOLATILE(ring->missed_since);
	__u64 missed = __atomic_exchange_n(&ring->missed, 0, __ATOMIC_RELAXED);
	struct klogger_lost *lost;

	if (!missed)
		return 1;
	lost = (struct klogger_lost *)klogger_claim(ring, mask, sizeof(*lost));
	if (!lost) {
		__atomic_add_fetch(&ring->missed, missed, __ATOMIC_RELAXED);
		return 0;
	}
	lost->count = missed;
	lost->since = since;
	klogger_publish(&lost->header, KLOGGER_HEADER(time, KLOGGER_LOST_ID));
	return 1;
}

KLOGGER_SLOW void *klogger_claim_or_lose(struct klogger_ring *ring, __u64 mask, __u64 time, __u32 id, __u32 size)
{
	void *record;

	if (KLOGGER_VOLATILE(ring->limit) < KLOGGER_VOLATILE(ring->hard) &&
	    KLOGGER_VOLATILE(ring->head) + size > KLOGGER_VOLATILE(ring->limit))
		klogger_call_reader(ring);
	/* Room for both, or else a ring that is nearly full would hold little but LOST records. */
	if (KLOGGER_VOLATILE(ring->missed) &&
	    (KLOGGER_VOLATILE(ring->head) + sizeof(struct klogger_lost) + size > KLOGGER_VOLATILE(ring->hard) ||
	     !klogger_put_lost(ring, mask, time))) {
		klogger_count_lost(ring, time, id);
		return NULL;
	}
	record = klogger_claim(ring, mask, size);
	if (!record)
		klogger_count_lost(ring, time, id);
	return record;
}

/*
 * Flight recorder: `limit` is the end of the part of the grid that is being filled. The next part
 * is zeroed, so that a record which is never completed has no header word, and its first record
 * noted (ring.h).
 */
KLOGGER_SLOW void *klogger_overwrite(struct klogger_ring *ring, __u32 size)
{
	__u64 part = (klogger_module.mask + 1) >> KLOGGER_GRID_SHIFT;
	__u64 head = KLOGGER_VOLATILE(ring->head), limit = KLOGGER_VOLATILE(ring->limit);
	__u64 first = head == limit ? head : head + size;

	if (head + size <= limit) {
		KLOGGER_VOLATILE(ring->head) = head + size;
		return &ring->data[head & klogger_module.mask];
	}
	memset(&ring->data[limit & klogger_module.mask], 0, part);
	__atomic_store_n(&ring->first[limit / part & (KLOGGER_GRID - 1)], first, __ATOMIC_RELEASE);
	KLOGGER_VOLATILE(ring->limit) = limit + part;
	KLOGGER_VOLATILE(ring->head) = head + size;
	return &ring->data[head & klogger_module.mask];
}

KLOGGER_SLOW void *klogger_reserve_main(struct klogger_ring *ring, __u64 time, __u32 id, __u32 size)
{
	if (klogger_module.control->flight)
		return klogger_overwrite(ring, size);
	return klogger_claim_or_lose(ring, klogger_module.mask, time, id, size);
}

/*
 * Makes sure that memory is there: a store to a page that a full /dev/shm cannot give would be a
 * SIGBUS.
 */
KLOGGER_SLOW int klogger_populate(void *from, size_t length)
{
	size_t before = (size_t)from & (klogger_module.page - 1);

	return (int)syscall(SYS_madvise, (char *)from - before, length + before, KLOGGER_MADV_POPULATE_WRITE);
}

static inline void klogger_open_ring(struct klogger_ring *ring, __u64 size, __u64 limit)
{
	if (ring->hard)
		return;		/* positions run on from the last use */
	KLOGGER_VOLATILE(ring->hard) = size;
	KLOGGER_VOLATILE(ring->limit) = limit;
}

KLOGGER_SLOW void *klogger_reserve_nested(struct klogger_ring *ring, __u64 time, __u32 id, __u32 size)
{
	struct klogger_ring *nested = (struct klogger_ring *)((char *)ring + KLOGGER_RING_BYTES(klogger_module.mask + 1));

	if (!klogger_thread.nested_ready) {
		if (klogger_populate(nested, KLOGGER_RING_BYTES(KLOGGER_NESTED))) {
			klogger_count_lost(ring, time, id);
			return NULL;
		}
		klogger_open_ring(nested, KLOGGER_NESTED, KLOGGER_NESTED / 2);
		klogger_thread.nested_ready = 1;
	}
	return klogger_claim_or_lose(nested, KLOGGER_NESTED - 1, time, id, size);
}

/* ---- A thread gets its slot, and gives it back ---- */

KLOGGER_SLOW void klogger_lose_ringless(__u32 id)
{
	__u64 *lost;

	if (!klogger_module.control)
		return;
	lost = &klogger_module.rest->lost[id & (KLOGGER_EVENTS_MAX - 1)];
	if (!klogger_populate(lost, sizeof(*lost)))
		__atomic_add_fetch(lost, 1, __ATOMIC_RELAXED);
}

/*
 * Whether the slot is free for a new thread. Pairs with the recorder's release store of `emptied`.
 */
KLOGGER_SLOW int klogger_slot_is_free(struct klogger_slot *slot, __u32 use, __u32 armed)
{
	if (use & 1)
		return 0;
	return !armed || __atomic_load_n(&slot->emptied, __ATOMIC_ACQUIRE) == use;
}

/*
 * Slots that nobody uses are out of reach, or else mlockall() would fill all of them with memory.
 */
KLOGGER_SLOW int klogger_reach_slot(__u32 number)
{
	const struct klogger_control *control = klogger_module.control;
	char *slot = klogger_module.slots + number * control->slot_stride;
	size_t before = (size_t)slot & (klogger_module.page - 1);

	return (int)syscall(SYS_mprotect, slot - before, control->slot_stride + before, PROT_READ | PROT_WRITE);
}

KLOGGER_SLOW struct klogger_ring *klogger_open_slot(__u32 number)
{
	const struct klogger_control *control = klogger_module.control;
	struct klogger_ring *ring = (struct klogger_ring *)(klogger_module.slots + number * control->slot_stride);
	__u64 size = klogger_module.mask + 1, *lost = klogger_module.rest->lost;

	/*
	 * Counters first: when the ring takes the last of a full /dev/shm, its loss is still
	 * counted.
	 */
	if (klogger_reach_slot(number) || klogger_populate(lost, KLOGGER_EVENTS_MAX * sizeof(*lost)) ||
	    klogger_populate(ring, KLOGGER_RING_BYTES(size)))
		return NULL;
	klogger_open_ring(ring, control->flight ? ~0ull : size, control->flight ? size >> KLOGGER_GRID_SHIFT : size / 2);
	KLOGGER_VOLATILE(ring->nest) = 0;
	return ring;
}

/* Takes the first slot that is free; -1 if none is. */
KLOGGER_SLOW int klogger_take_slot(void)
{
	struct klogger_control *control = klogger_module.control;
	__u32 armed = KLOGGER_VOLATILE(control->armed), i, use;
	__u32 allowed = armed ? KLOGGER_VOLATILE(control->slots_allowed) : control->slots;

	for (i = 0; i < allowed && i < control->slots; i++) {
		struct klogger_slot *slot = &klogger_module.rest->slot[i];

		if (i % (4096 / sizeof(*slot)) == 0 && klogger_populate(slot, sizeof(*slot)))
			break;
		use = __atomic_load_n(&slot->use, __ATOMIC_ACQUIRE);
		if (klogger_slot_is_free(slot, use, armed) &&
		    __atomic_compare_exchange_n(&slot->use, &use, use + 1, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
			KLOGGER_VOLATILE(slot->tid) = klogger_thread.tid;
			return (int)i;
		}
	}
	errno = ENOMEM;
	return -1;
}

/*
 * As the destructor of a key, at the end of a thread; what the thread logs still later takes
 * another slot.
 */
KLOGGER_SLOW void klogger_end_thread(void *unused)
{
	__u32 number = klogger_thread.slot;

	(void)unused;
	if (!number)
		return;
	klogger_thread.ring = klogger_thread.careful = &klogger_no_ring;
	klogger_thread.slot = 0;
	klogger_barrier();
	klogger_module.cells[number - 1] = NULL;
	/* Pairs with the recorder's acquire load: all records of this use are in the ring. */
	__atomic_add_fetch(&klogger_module.rest->slot[number - 1].use, 1, __ATOMIC_RELEASE);
}

KLOGGER_SLOW struct klogger_ring *klogger_get_ring(void)
{
	struct klogger_ring *ring;
	int number;

	klogger_thread.tid = (__u32)syscall(SYS_gettid);
	number = klogger_take_slot();
	if (number < 0)
		return NULL;
	ring = klogger_open_slot((__u32)number);
	if (!ring) {
		__atomic_add_fetch(&klogger_module.rest->slot[number].use, 1, __ATOMIC_RELEASE);
		return NULL;
	}
	__atomic_store_n(&klogger_module.used, 1, __ATOMIC_RELAXED);
	klogger_module.cells[number] = ring;
	klogger_thread.nested_ready = 0;
	klogger_thread.slot = (__u32)number + 1;
	klogger_thread.careful = &klogger_module.cells[number];
	if (klogger_module.tsc)
		klogger_thread.ring = klogger_thread.careful;
	if (klogger_module.has_key)
		pthread_setspecific(klogger_module.key, &klogger_module);
	return ring;
}

void klogger_forked(int mute);

KLOGGER_SLOW int klogger_has_forked(void)
{
	return !*klogger_module.same;
}

/*
 * If there was no slot when the thread last looked, it looks again after 100 events, 200, 400, ...
 * 25600.
 */
KLOGGER_SLOW struct klogger_ring *klogger_look_for_ring(void)
{
	struct klogger_ring *ring = *klogger_thread.careful;

	/* A signal handler came first. */
	if (ring)
		return ring;
	/* A child of vfork() has its parent's memory, and no thread of it. */
	if (klogger_module.pid != (__u32)syscall(SYS_getpid))
		return NULL;
	if (klogger_thread.patience) {
		klogger_thread.patience--;
		return NULL;
	}
	ring = klogger_get_ring();
	if (!ring) {
		__atomic_store_n(&klogger_module.control->failed, (__u32)errno, __ATOMIC_RELAXED);
		klogger_thread.patience = 100u << (klogger_thread.looks++ & 7);
	}
	return ring;
}

/*
 * The thread has no ring: it is new, or the process forked without telling libc, or there was no
 * slot.
 */
KLOGGER_SLOW struct klogger_ring *klogger_find_ring(void)
{
	struct klogger_ring *ring;

	if (klogger_thread.busy || !klogger_module.control)
		return NULL;
	klogger_thread.busy = 1;
	klogger_barrier();
	if (klogger_has_forked())
		klogger_forked(0);
	ring = klogger_look_for_ring();
	klogger_barrier();
	klogger_thread.busy = 0;
	return ring;
}

KLOGGER_SLOW void *klogger_reserve_somehow(struct klogger_hit *hit, __u32 id, __u32 size)
{
	struct klogger_ring *ring = *klogger_thread.careful;

	if (!ring)
		ring = klogger_find_ring();
	if (!ring) {
		klogger_lose_ringless(id);
		return NULL;
	}
	hit->nest = KLOGGER_VOLATILE(ring->nest);
	KLOGGER_VOLATILE(ring->nest) = hit->nest + 1;
	klogger_barrier();
	hit->ring = ring;
	hit->time = klogger_module.tsc ? klogger_tsc() : klogger_monotonic();
	if (hit->nest)
		return klogger_reserve_nested(ring, hit->time, id, size);
	return klogger_reserve_main(ring, hit->time, id, size);
}

/* As klogger_reserve_in(), wherever the thread stands. */
KLOGGER_SLOW void *klogger_reserve_with_care(struct klogger_hit *hit, __u32 id, __u32 size)
{
	int error = errno;
	void *record = klogger_reserve_somehow(hit, id, size);

	errno = error;
	return record;
}

/* ---- The file ---- */

static inline char *klogger_put(char *to, const char *text)
{
	while (*text)
		*to++ = *text++;
	*to = 0;
	return to;
}

static inline char *klogger_put_number(char *to, __u64 n, unsigned base)
{
	char digits[24];
	int i = 0;

	do {
		digits[i++] = "0123456789abcdef"[n % base];
		n /= base;
	} while (n);
	while (i)
		*to++ = digits[--i];
	*to = 0;
	return to;
}

/* Whether the TSC runs at one speed whatever the CPU does. A recorder that knows better says so. */
static inline __u32 klogger_tsc_is_invariant(void)
{
#ifdef __x86_64__
	unsigned a, b, c, d;

	return __get_cpuid(0x80000007, &a, &b, &c, &d) && (d >> 8 & 1);
#else
	return 0;
#endif
}

/* A folder that is this user's alone; a file descriptor, or -1. */
KLOGGER_SLOW int klogger_open_folder(const char *path)
{
	struct stat st;
	int fd;

	syscall(SYS_mkdirat, AT_FDCWD, path, 0700);
	fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -1;
	if (fstat(fd, &st) || st.st_uid != (__u32)syscall(SYS_geteuid) || (st.st_mode & 077)) {
		syscall(SYS_close, fd);
		errno = EPERM;
		return -1;
	}
	return fd;
}

/* $KLOGGER_DIR, /dev/shm/klogger-UID or $XDG_RUNTIME_DIR/klogger; `path` gets its name. */
KLOGGER_SLOW int klogger_find_folder(char *path, size_t size)
{
	int secure = getauxval(AT_SECURE) != 0, fd;
	const char *dir = secure ? NULL : getenv("KLOGGER_DIR");
	const char *run = secure ? NULL : getenv("XDG_RUNTIME_DIR");

	if (dir) {
		if (*dir != '/' || strlen(dir) + 64 > size) {
			errno = EINVAL;
			return -1;
		}
		klogger_put(path, dir);
		return klogger_open_folder(path);
	}
	klogger_put_number(klogger_put(path, "/dev/shm/klogger-"), (__u64)syscall(SYS_geteuid), 10);
	fd = klogger_open_folder(path);
	if (fd < 0 && run && strlen(run) + 64 < size) {
		klogger_put(klogger_put(path, run), "/klogger");
		fd = klogger_open_folder(path);
	}
	return fd;
}

KLOGGER_SLOW __u64 klogger_pid_ns(void)
{
	struct stat st;

	return stat("/proc/self/ns/pid", &st) ? 0 : (__u64)st.st_ino;
}

/*
 * Removes files of dead programs that nobody records: a program that is killed, or that forks and
 * calls exec, cannot do it. Looks at some tens at most, so that a program starts as quickly in a
 * full folder. What another pid namespace means by a number is not known here.
 */
KLOGGER_SLOW void klogger_sweep(int folder, __u64 pid_ns)
{
	struct entry { __u64 inode; __s64 next; unsigned short length; unsigned char type; char name[]; };
	char buffer[2048] __attribute__((aligned(8)));
	long bytes = syscall(SYS_getdents64, folder, buffer, sizeof(buffer)), at = 0;

	while (at < bytes) {
		struct entry *entry = (struct entry *)(buffer + at);
		struct klogger_control control;
		long pid = strtol(entry->name, NULL, 10);
		int fd;

		at += entry->length;
		if (pid <= 0 || !syscall(SYS_kill, pid, 0) || errno != ESRCH)
			continue;
		fd = (int)syscall(SYS_openat, folder, entry->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
		if (fd < 0)
			continue;
		if (syscall(SYS_pread64, fd, &control, sizeof(control), 0) == (long)sizeof(control) &&
		    control.magic == KLOGGER_CONTROL_MAGIC && pid_ns && control.pid_ns == pid_ns && !control.armed &&
		    !control.flight)
			syscall(SYS_unlinkat, folder, entry->name, 0);
		syscall(SYS_close, fd);
	}
}

/*
 * Whether `name` stands in the list up to `end`, whose words are separated by commas; "*" names
 * all.
 */
static inline int klogger_is_listed(const char *list, const char *end, const char *name)
{
	size_t length = strlen(name);

	if (end - list == 1 && *list == '*')
		return 1;
	while (list < end) {
		const char *stop = list;

		while (stop < end && *stop != ',')
			stop++;
		if ((size_t)(stop - list) == length && !memcmp(list, name, length))
			return 1;
		list = stop + 1;
	}
	return 0;
}

/*
 * Turns on what KLOGGER_RECORD names: schemata and, after a colon, events of these which stay off.
 */
KLOGGER_SLOW void klogger_select(struct klogger_control *control, const char *list)
{
	const char *end = strchr(list, ':');
	const char *off, *name;
	struct klogger_unit *unit;
	__u32 i;

	if (!end)
		end = list + strlen(list);
	off = *end ? end + 1 : end;
	for (unit = klogger_module.units; unit; unit = unit->next) {
		if (!klogger_is_listed(list, end, unit->name))
			continue;
		for (i = 0, name = unit->names; i < unit->events; i++, name += strlen(name) + 1)
			control->on[unit->base + i] = !klogger_is_listed(off, off + strlen(off), name);
	}
	control->on[KLOGGER_MARK_ID] = 1;
}

/* Whether a process of this number is there, as far as one can know. */
KLOGGER_SLOW int klogger_is_dead(const struct klogger_control *control, __u32 pid)
{
	return control->pid_ns == KLOGGER_FIRST_PID_NS && syscall(SYS_kill, (pid_t)pid, 0) && errno == ESRCH;
}

/* 1:TOKEN:PID:RING:SLOTS:CLOCK:SCHEMATA:OFF, as a recorder gives it to its command. */
KLOGGER_SLOW void klogger_obey(struct klogger_control *control)
{
	const char *wish = getauxval(AT_SECURE) ? NULL : getenv("KLOGGER_RECORD");
	__u64 number[5];
	char *end;
	int i;

	if (!wish || strncmp(wish, "1:", 2))
		return;
	wish += 2;
	for (i = 0; i < 5; i++) {
		number[i] = strtoull(wish, &end, i ? 10 : 16);
		if (*end != ':')
			return;
		wish = end + 1;
	}
	if (number[2] < KLOGGER_USER_RING_MIN || number[2] > KLOGGER_USER_RING_MAX || (number[2] & (number[2] - 1)))
		return;
	/*
	 * The environment may outlive the recording. In a pid namespace the number of one outside
	 * means nothing.
	 */
	if (klogger_is_dead(control, (__u32)number[1]))
		return;
	control->token = number[0];
	control->armed = (__u32)number[1];
	control->ring_size = (__u32)number[2];
	control->slots_allowed = (__u32)number[3];
	control->clock = control->clock && number[4] ? KLOGGER_CLOCK_TSC : KLOGGER_CLOCK_MONOTONIC;
	klogger_select(control, wish);
}

/* KLOGGER_FLIGHT=BYTES: log always, keep the newest, for whoever comes after a crash. */
KLOGGER_SLOW void klogger_take_off(struct klogger_control *control)
{
	const char *wish = getauxval(AT_SECURE) ? NULL : getenv("KLOGGER_FLIGHT");
	unsigned long long size = wish ? strtoull(wish, NULL, 10) : 0;
	__u32 ring = 1u << 17;

	if (!size || control->armed)
		return;
	while (ring < size && ring < KLOGGER_USER_RING_MAX)
		ring *= 2;
	control->ring_size = ring;
	control->flight = 1;
	klogger_select(control, "*");
}

/* Gives each schema its ids and its place for its text; the bytes of all texts, or 0: too many. */
KLOGGER_SLOW __u32 klogger_describe(struct klogger_control *control)
{
	__u32 base = KLOGGER_LOCAL_BASE, bytes = 0, at;
	struct klogger_unit *unit;

	for (unit = klogger_module.units; unit; unit = unit->next)
		bytes += unit->length;
	at = bytes <= sizeof(control->first_texts) ? offsetof(struct klogger_control, first_texts) : sizeof(*control);
	for (unit = klogger_module.units; unit; unit = unit->next) {
		struct klogger_module_schema *schema = &control->schema[control->schemata];

		if (control->schemata == KLOGGER_SCHEMATA_MAX || bytes > KLOGGER_TEXT_MAX ||
		    base + unit->events > KLOGGER_EVENTS_MAX || strlen(unit->name) >= sizeof(schema->name)) {
			errno = E2BIG;
			return 0;
		}
		schema->base = unit->base = base;
		schema->events = unit->events;
		schema->text = at;
		schema->length = unit->length;
		klogger_put(schema->name, unit->name);
		control->schemata++;
		at += unit->length;
		base += unit->events;
	}
	return bytes;
}

KLOGGER_SLOW int klogger_write_texts(int fd, const struct klogger_control *control)
{
	const struct klogger_module_schema *schema = control->schema;
	struct klogger_unit *unit;

	for (unit = klogger_module.units; unit; unit = unit->next, schema++)
		if (syscall(SYS_pwrite64, fd, unit->text, unit->length, schema->text) != (long)unit->length)
			return -1;
	return 0;
}

/*
 * The control page and what follows it can be used at once, slots when they are taken
 * (klogger_reach_slot): or else mlockall() would make all of them real. In a child there is never a
 * moment without a page that may be touched.
 */
KLOGGER_SLOW void *klogger_map(int fd, const struct klogger_control *control, void *at)
{
	/* In whole pages: with pages of 16 or 64 KiB the first slot begins within one. */
	long flags = MAP_SHARED | MAP_NORESERVE, page = (long)klogger_module.page;
	long before = ((long)control->slots_at + page - 1) & ~(page - 1);
	char *map = (char *)at;

	if (!at) {
		map = (char *)syscall(SYS_mmap, NULL, control->size, PROT_NONE, flags, fd, 0L);
		if (map != MAP_FAILED && syscall(SYS_mprotect, map, before, PROT_READ | PROT_WRITE))
			return MAP_FAILED;
		return map;
	}
	if ((void *)syscall(SYS_mmap, map, before, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd, 0L) == MAP_FAILED)
		return MAP_FAILED;
	return (void *)syscall(SYS_mmap, map + before, control->size - before, PROT_NONE, flags | MAP_FIXED, fd, before) ==
			       MAP_FAILED ? MAP_FAILED : at;
}

/*
 * Makes the file and maps it: at `at`, in place of what is there, or anywhere. Async-signal-safe.
 */
KLOGGER_SLOW void *klogger_make_file(int folder, const char *dir, struct klogger_control *control, void *at)
{
	char path[64];
	void *map = MAP_FAILED;
	int fd;

	klogger_put_number(klogger_put(klogger_put_number(klogger_put(path, "."), control->pid, 10), "."),
			   control->image, 16);
	fd = (int)syscall(SYS_openat, folder, path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return MAP_FAILED;
	if (!syscall(SYS_ftruncate, fd, control->size) &&
	    syscall(SYS_pwrite64, fd, control, sizeof(*control), 0) == (long)sizeof(*control) &&
	    !klogger_write_texts(fd, control))
		map = klogger_map(fd, control, at);
	if (map == MAP_FAILED) {
		syscall(SYS_unlinkat, folder, path, 0);
	} else if (syscall(SYS_renameat2, folder, path, folder, path + 1, 0)) {
		/*
		 * Nobody will find it, so nothing is logged. It stays, for it may stand where a
		 * parent's file was.
		 */
		syscall(SYS_unlinkat, folder, path, 0);
		memset(((struct klogger_control *)map)->on, 0, KLOGGER_EVENTS_MAX);
	} else {
		klogger_put(klogger_put(klogger_put(klogger_module.path, dir), "/"), path + 1);
	}
	syscall(SYS_close, fd);
	return map;
}

KLOGGER_SLOW struct klogger_unit *klogger_find_unit(const char *name)
{
	struct klogger_unit *unit = klogger_module.units;

	while (unit && strcmp(unit->name, name))
		unit = unit->next;
	return unit;
}

KLOGGER_SLOW void klogger_use_file(void *map)
{
	struct klogger_control *control = (struct klogger_control *)map;
	struct klogger_unit *unit;

	klogger_module.rest = (struct klogger_control_rest *)(control + 1);
	klogger_module.slots = (char *)map + control->slots_at;
	klogger_module.mask = control->ring_size - 1;
	klogger_module.tsc = control->clock == KLOGGER_CLOCK_TSC;
	klogger_module.pid = control->pid;
	klogger_module.control = control;
	for (unit = klogger_module.units; unit; unit = unit->next)
		__atomic_store_n(&unit->on, control->on + unit->base, __ATOMIC_RELEASE);
	for (unit = klogger_module.twins; unit; unit = unit->next) {
		unit->base = klogger_find_unit(unit->name)->base;
		__atomic_store_n(&unit->on, control->on + unit->base, __ATOMIC_RELEASE);
	}
	klogger_own.on = control->on + klogger_own.base;
}

/*
 * How many bytes the shared file may have: more than RLIMIT_FSIZE is a signal that ends the
 * program.
 */
KLOGGER_SLOW __u64 klogger_bytes_allowed(void)
{
	struct { __u64 soft, hard; } file = { ~0ull, ~0ull }, space = { ~0ull, ~0ull };

	syscall(SYS_prlimit64, 0, KLOGGER_RLIMIT_FSIZE, NULL, &file);
	syscall(SYS_prlimit64, 0, KLOGGER_RLIMIT_AS, NULL, &space);
	return file.soft < space.soft / 4 ? file.soft : space.soft / 4;
}

/*
 * The end of the memory that all slots need, or less if the program may not have as much; 0 if not
 * even one fits.
 */
KLOGGER_SLOW int klogger_measure(struct klogger_control *control)
{
	__u64 slots = control->slots_allowed > 512 ? control->slots_allowed : 512, allowed = klogger_bytes_allowed();

	if (slots > KLOGGER_SLOTS_MAX)
		slots = KLOGGER_SLOTS_MAX;
	control->slots_at = KLOGGER_SLOTS_AT;
	control->slot_stride = KLOGGER_SLOT_BYTES((__u64)control->ring_size);
	while (slots && control->slots_at + slots * control->slot_stride > allowed)
		slots /= 2;
	control->slots = (__u32)slots;
	control->size = control->slots_at + slots * control->slot_stride;
	if (!slots)
		errno = EFBIG;
	return slots != 0;
}

/* On stderr, once, if somebody wants this program's events and will not get them. */
KLOGGER_SLOW void klogger_complain(const char *what, const char *why)
{
	char text[256], *end;

	if (getauxval(AT_SECURE) || (!getenv("KLOGGER_RECORD") && !getenv("KLOGGER_FLIGHT")))
		return;
	end = klogger_put(klogger_put(klogger_put(text, "klogger: "), what), ": ");
	end = klogger_put(end, strlen(why) < 64 ? why : "an error with a long name");
	end = klogger_put(end, "\n");
	if (syscall(SYS_write, 2, text, end - text) < 0)
		return;
}

/* Memory that a forked child finds empty, however it was forked. */
KLOGGER_SLOW int klogger_make_cells(__u32 slots)
{
	size_t bytes = (slots + 1) * sizeof(*klogger_module.cells);
	void *map = (void *)syscall(SYS_mmap, NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0L);

	if (map == MAP_FAILED)
		return -1;
	syscall(SYS_madvise, map, bytes, KLOGGER_MADV_WIPEONFORK);
	klogger_module.cells = (struct klogger_ring **)map;
	klogger_module.same = klogger_module.cells + slots;
	*klogger_module.same = (struct klogger_ring *)map;
	return 0;
}

/*
 * In a forked child: a file of its own, in the place of its parent's, so that no address changes.
 * If a signal handler forked in the middle of an event, the rest of that event goes into a slot
 * that nobody reads. A mute child has all events off.
 */
KLOGGER_SLOW void klogger_forked(int mute)
{
	struct klogger_control control = *klogger_module.control;
	__u32 number = klogger_thread.slot, i;
	char dir[256];
	int folder;
	void *map = MAP_FAILED;

	klogger_thread.ring = klogger_thread.careful = &klogger_no_ring;
	klogger_thread.slot = 0;
	for (i = 0; klogger_module.used && i < control.slots; i++)
		klogger_module.cells[i] = NULL;
	*klogger_module.same = (struct klogger_ring *)klogger_module.cells;
	klogger_module.used = 0;
	control.parent = control.pid;
	control.pid = (__u32)syscall(SYS_getpid);
	control.image = klogger_monotonic();
	control.pid_ns = klogger_pid_ns();
	control.failed = control.call = 0;
	/* This recorder does not know the child yet, and its death would not be noted here. */
	control.keeper = 0;
	control.abandoned = 0;
	if (mute || (control.armed && klogger_is_dead(&control, control.armed)))
		memset(control.on, 0, sizeof(control.on));
	folder = klogger_find_folder(dir, sizeof(dir));
	if (folder >= 0 && control.size > klogger_bytes_allowed()) {
		syscall(SYS_close, folder);
		folder = -1;
		errno = EFBIG;
	}
	if (folder >= 0) {
		klogger_sweep(folder, control.pid_ns);
		map = klogger_make_file(folder, dir, &control, klogger_module.control);
		syscall(SYS_close, folder);
	}
	if (map == MAP_FAILED) {
		/* The parent's recorder hears of it; what the child logs goes nowhere. */
		klogger_module.control->failed = (__u32)errno;
		syscall(SYS_mmap, klogger_module.control, control.size, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0L);
		return;
	}
	klogger_use_file(map);
	if (!number)
		return;
	klogger_reach_slot(number - 1);
	if (!klogger_populate(&klogger_module.rest->slot[number - 1], sizeof(struct klogger_slot)))
		klogger_module.rest->slot[number - 1].use = 1;
}

/* By pthread_atfork(). A fork in the middle of the search for a slot leaves a mute child. */
KLOGGER_SLOW void klogger_fork_child(void)
{
	int error = errno;

	if (!klogger_module.control)
		return;
	klogger_forked(klogger_thread.busy);
	errno = error;
}

/* Without a key, threads do not give back their slots; the recorder sees when they are gone. */
KLOGGER_SLOW void klogger_make_key(void)
{
	klogger_module.has_key = !pthread_key_create(&klogger_module.key, klogger_end_thread);
	/* glibc allocates for the values of later keys, which a signal handler must not do. */
	if (klogger_module.has_key && klogger_module.key >= 32) {
		pthread_key_delete(klogger_module.key);
		klogger_module.has_key = 0;
	}
}

/* Before main(), or when the library is opened: makes the module known to recorders. */
KLOGGER_SLOW void klogger_register(void)
{
	struct klogger_control control;
	char dir[256];
	void *map = MAP_FAILED;
	int folder, error = errno;

	if (klogger_module.control || !klogger_module.units)
		return;
	memset(&control, 0, sizeof(control));
	control.magic = KLOGGER_CONTROL_MAGIC;
	control.version = KLOGGER_CONTROL_VERSION;
	control.pid = (__u32)syscall(SYS_getpid);
	control.pid_ns = klogger_pid_ns();
	control.image = klogger_monotonic();
	control.ring_size = 1u << 20;
	control.clock = klogger_tsc_is_invariant() ? KLOGGER_CLOCK_TSC : KLOGGER_CLOCK_MONOTONIC;
	klogger_module.page = getauxval(AT_PAGESZ);
	folder = klogger_find_folder(dir, sizeof(dir));
	if (folder >= 0 && klogger_describe(&control)) {
		klogger_obey(&control);
		klogger_take_off(&control);
		klogger_sweep(folder, control.pid_ns);
		if (klogger_measure(&control) && !klogger_make_cells(control.slots))
			map = klogger_make_file(folder, dir, &control, NULL);
	}
	if (map == MAP_FAILED) {
		klogger_complain("this program's events are not logged", strerror(errno));
	} else {
		syscall(SYS_madvise, map, control.size, KLOGGER_MADV_DONTDUMP);
		klogger_make_key();
		pthread_atfork(NULL, NULL, klogger_fork_child);
		klogger_use_file(map);
	}
	if (folder >= 0)
		syscall(SYS_close, folder);
	errno = error;
}

/* At exit, or dlclose(). A recorder that is at work removes the file when it has emptied it. */
KLOGGER_SLOW void klogger_unregister(void)
{
	const struct klogger_control *control = klogger_module.control;

	if (!control || klogger_module.pid != (__u32)syscall(SYS_getpid))
		return;
	if (klogger_module.has_key)
		pthread_key_delete(klogger_module.key);
	klogger_module.has_key = 0;
	if (!KLOGGER_VOLATILE(control->armed) && !control->flight)
		syscall(SYS_unlinkat, AT_FDCWD, klogger_module.path, 0);
}

/*
 * Adds a schema. The linker makes one unit of those that C has of one text; each crate of a Rust
 * program has its own. One of the same name, of another version, stays off: its header must be made
 * again.
 */
KLOGGER_SLOW void klogger_link(struct klogger_unit *unit)
{
	struct klogger_unit *other = klogger_find_unit(unit->name), **list = &klogger_module.units;

	if (unit->linked)
		return;
	unit->linked = 1;
	/*
	 * This function is one version's, and so is all that it reads; the code around its callers
	 * may be another's.
	 */
	if (unit->runtime != KLOGGER_RUNTIME) {
		klogger_complain("a schema is not logged, for its header is of another klogger; make all headers again",
				 unit->name);
		return;
	}
	if (other) {
		if (other->length != unit->length || memcmp(other->text, unit->text, unit->length)) {
			klogger_complain("two versions of a schema in one program, so one is not logged; make its headers again",
					 unit->name);
			return;
		}
		list = &klogger_module.twins;
	}
	unit->next = *list;
	*list = unit;
}

static __attribute__((constructor(102))) void klogger_start(void)
{
	klogger_register();
}

static __attribute__((destructor(102))) void klogger_end(void)
{
	klogger_unregister();
}

#ifdef __cplusplus
}
#endif
#endif
