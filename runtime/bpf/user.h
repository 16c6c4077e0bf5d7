/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Arguments of functions and static probes of programs: their registers are the context of the BPF
 * program, as `struct pt_regs`. Registers are words of it.
 */
#ifndef KLOGGER_BPF_USER_H
#define KLOGGER_BPF_USER_H

#include "maps.h"
#include "registers.h"

/* The load is volatile, because the verifier refuses those at offsets that were combined. */
#define klogger_register(word) \
	(*(const volatile __u64 *)((const char *)klogger_arguments + 8 * (word)))

static __always_inline __u64 klogger_user_word(__u64 address)
{
	__u64 word = 0;

	bpf_probe_read_user(&word, sizeof(word), (const void *)address);
	return word;
}

#define klogger_user_argument(n)                                                       \
	((n) < KLOGGER_IN_REGISTERS ?                                                  \
		 klogger_register((n) < KLOGGER_IN_REGISTERS ? KLOGGER_WORD_OF(n) : 0) : \
		 klogger_user_word(klogger_register(KLOGGER_WORD_OF_STACK) +           \
				   KLOGGER_ON_STACK(n)))
#define klogger_user_result(n) klogger_register(KLOGGER_WORD_OF_RESULT)

/* The number of the place, which is the upper half of its link's cookie. */
#define klogger_place_of_link(context) ((__u32)(bpf_get_attach_cookie(context) >> 32))

#ifdef KLOGGER_USDT
/* The places of this object's static probes. The cookie of a link is the number of one. */
struct {
	int (*type)[2 /* BPF_MAP_TYPE_ARRAY */];
	int (*max_entries)[KLOGGER_USDT_PLACES];
	int (*key_size)[4];
	int (*value_size)[sizeof(struct klogger_usdt)];
} klogger_usdt_places SEC(".maps");

static __always_inline __u64 klogger_word_of(void *context, __u16 word)
{
	__u64 value = 0;

	/* The offset is not a constant, so the program cannot read it from its context. */
	if (word != KLOGGER_NO_REGISTER)
		bpf_probe_read_kernel(&value, sizeof(value), (char *)context + 8 * word);
	return value;
}

static __noinline __u64 klogger_usdt_read(void *context, __u32 n)
{
	__u32 place = bpf_get_attach_cookie(context);
	struct klogger_usdt *usdt = bpf_map_lookup_elem(&klogger_usdt_places, &place);
	struct klogger_usdt_argument *at;
	__u64 value, memory = 0;

	if (!usdt || n >= KLOGGER_USDT_ARGUMENTS)
		return 0;
	at = &usdt->arguments[n];
	value = at->plus + klogger_word_of(context, at->base) +
		(klogger_word_of(context, at->index) << (at->scale & 3));
	if (at->kind == KLOGGER_MEMORY) {
		/* No byte more, which may be on the next page. */
		bpf_probe_read_user(&memory, 8 - ((at->right >> 3) & 7), (const void *)value);
		value = memory;
	}
	value <<= at->left & 63;
	return at->is_signed ? (__u64)((__s64)value >> (at->right & 63)) :
			       value >> (at->right & 63);
}

#define klogger_usdt_argument(n) klogger_usdt_read(klogger_arguments, n)
#endif

#endif
