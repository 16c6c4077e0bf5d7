// SPDX-License-Identifier: GPL-2.0-only
// The least that a uprobe can cost: an empty program at FUNCTION, which is `PATH:NAME`.
#include <linux/bpf.h>

#define SEC(name) __attribute__((section(name), used))

SEC("uprobe/" FUNCTION) int floor_uprobe(void *context)
{
	return 0;
}

char license_text[] SEC("license") = "GPL";
