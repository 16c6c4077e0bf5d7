/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The fast path of an event: is it on, this thread's ring, space, clock, fields, header word. */
#ifndef KLOGGER_USER_EVENT_H
#define KLOGGER_USER_EVENT_H

#include "klogger/record.h"
#include "module.h"

KLOGGER_C_BEGIN

/* Programs have no probes: each call is a hit. klogger_call_EVENT() is generated. */
#undef klogger
#define klogger(event, ...) klogger_call_##event(__VA_ARGS__)

/*
 * A load of the pointer, a comparison in memory, and a branch that is not taken while the event is
 * off. With a volatile load the comparison would cost one instruction more.
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
 * Pairs with the acquire load in the recorder's drain: a drain that sees the header word sees the
 * fields.
 */
static __always_inline void klogger_publish(__u64 *header, __u64 value)
{
	__atomic_store_n(header, value, __ATOMIC_RELEASE);
}

void *klogger_reserve_slow(struct klogger_hit *hit, __u32 id, __u32 size);

static __always_inline void klogger_leave(struct klogger_hit *hit)
{
	klogger_barrier();
	if (hit->ring)
		KLOGGER_VOLATILE(hit->ring->nest) = hit->nest;
}

/*
 * `size` bytes at the writers' position.
 *
 * The fast path makes no calls, because then the compiler would save registers around it. If it
 * cannot be used (no ring yet, a signal handler in the middle of an event, low-water mark reached),
 * it returns NULL without any effect, and klogger_slow_EVENT() starts again. A program whose clock
 * is not the TSC always takes the slow path.
 *
 * The load of `limit` pairs with the drain's release store after zeroing: the stores that follow
 * depend on its value. Between the load and the store of `head` only a signal handler can
 * interrupt; it finds `nest` and uses the nested ring. So main rings are sorted by time, although
 * the clock is read after space was reserved. It is read as late as that because the instructions
 * after it wait for its result.
 */
static __always_inline void *klogger_reserve_in(struct klogger_hit *hit,
						const struct klogger_unit *unit, __u32 index,
						__u32 size)
{
	struct klogger_ring *ring;
	__u64 head, end;

	hit->base = unit->base;
	if (hit->slow)
		return klogger_reserve_slow(hit, hit->base + index, size);
	ring = *klogger_thread.ring;
	hit->again = 1;
	if (klogger_unlikely(!ring || KLOGGER_VOLATILE(ring->nest)))
		return NULL;
	KLOGGER_VOLATILE(ring->nest) = 1;
	klogger_barrier();
	hit->ring = ring;
	head = KLOGGER_VOLATILE(ring->head);
	end = head + size;
	if (klogger_unlikely(KLOGGER_VOLATILE(ring->missed) ||
			     end > __atomic_load_n(&ring->limit, __ATOMIC_ACQUIRE)))
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

/* A program reads its own memory; a bad pointer crashes it. */
#define klogger_copy(index, dst, src, size) memcpy(dst, src, size)
#define klogger_copy_text(index, dst, src, size) klogger_copy_string(dst, src, size)
#define klogger_text_read(index, text, src) klogger_text_measure(text, src)

/* Pads with zeros, because a flight recorder's ring contains old bytes. */
static __always_inline void klogger_copy_string(char *dst, const char *src, size_t size)
{
	size_t i = 0;

	for (; src && i + 1 < size && src[i]; i++)
		dst[i] = src[i];
	memset(dst + i, 0, size - i);
}

/* A `string` to be logged: its length must be known before space is reserved. */
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

/* For events with several `string`, or one of another length: bytes of the text, at most `most`. */
static __always_inline __u32 klogger_string_measure(const char *src, __u32 most)
{
	__u32 n = 0;

	while (src && n < most && src[n])
		n++;
	return n;
}

static __always_inline void klogger_string_copy(char *dst, const char *src, __u32 length)
{
	if (length)
		memcpy(dst, src, length);
}

#define klogger_string_length(index, src, most) klogger_string_measure(src, most)
#define klogger_string_store(index, dst, src, length, most) klogger_string_copy(dst, src, length)

/* For `context tid` and `context tgid`; known if the thread has a ring. */
static __always_inline __u32 klogger_context_tid(void)
{
	return klogger_thread.tid;
}

static __always_inline __u32 klogger_context_tgid(void)
{
	return klogger_module.pid;
}

/* For `context ppid`. A system call for each event, because the parent changes when it ends. */
static __always_inline __u32 klogger_context_ppid(void)
{
	return (__u32)getppid();
}

/* Programs have no interrupts: a signal handler is a thread's code as well. */
static __always_inline __u8 klogger_context_irq(void)
{
	return 0;
}

/* What gettid() returns is the number in the thread's own pid namespace. */
static __always_inline __u32 klogger_context_pidns_tid(void)
{
	return klogger_thread.tid;
}

/* A system call for each event: another thread may change the name. It fills 16 bytes. */
#define klogger_context_comm(to) ((void)prctl(PR_GET_NAME, to))

KLOGGER_C_END

#endif
