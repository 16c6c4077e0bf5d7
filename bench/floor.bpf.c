// SPDX-License-Identifier: GPL-2.0-only
// The least that a probe can cost: a program that is entered and left, and one that also reads the
// clock once.
#include <linux/bpf.h>

#define SEC(name) __attribute__((section(name), used))

static unsigned long long (*ktime_get_ns)(void) = (void *)BPF_FUNC_ktime_get_ns;

#ifdef CLOCK
#define BODY ktime_get_ns();
#else
#define BODY
#endif

SEC("tp_btf/" TRACEPOINT) int floor_probe(void *context)
{
	BODY
	return 0;
}

char license_text[] SEC("license") = "GPL";
