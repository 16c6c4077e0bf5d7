// SPDX-License-Identifier: GPL-2.0-only
// The least that it costs to see all system calls: a program at their entry, one at their exit.
#include <linux/bpf.h>

#define SEC(name) __attribute__((section(name), used))

SEC("tp_btf/sys_enter") int floor_enter(void *context)
{
	return 0;
}

SEC("tp_btf/sys_exit") int floor_exit(void *context)
{
	return 0;
}

char license_text[] SEC("license") = "GPL";
